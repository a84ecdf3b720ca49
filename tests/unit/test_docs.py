"""Documentation: generated pages are current, settings in pages are valid, and references in pages exist."""

from __future__ import annotations

import importlib.util
import json
import re
import textwrap
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from docs.references import FOLDER as DOCS
from docs.references import STACKS, pages
from docs.versions_reference import GROUPS, Part
from infra.hardware import Capacity
from infra.hardware.tpus import is_tpu
from infra.project import PROJECT_VARIABLE
from stack import validation
from stack.config import StackConfig, parse
from stack.validation import configuration_conflicts
from tests.problems import problems_of
from tests.unit.stack_settings import CLUSTER, JOB, KUBECONFIG
from tests.unit.test_eks_rules import EKS_PROBLEMS
from tests.unit.test_gke_rules import GKE_PROBLEMS
from trainer.config import parse as parse_flags
from workloads.command import program
from workloads.kinds import KINDS
from workloads.spec import EXAMPLES_FOLDER, JobSpec, example_jobs, example_names, yaml_blocks

PROJECT = Path(__file__).resolve().parents[2]
PAGES = pages()
GITHUB_COLUMNS = 97
"""Characters of a code block that a page on GitHub shows without scrolling."""
PARTS = [part for parts in GROUPS.values() for part in parts]
EXAMPLE_BLOCKS = [(name, index) for name in example_names() for index, _ in enumerate(yaml_blocks(name))]
"""Example and index of each YAML block on the pages of the examples."""
PROBLEM_CODES = {code for _, code, _ in (*EKS_PROBLEMS, *GKE_PROBLEMS)}
GKE = {"kind": "gke", "project": "some-project"}
CLOUDS_PAGE = (PROJECT / "docs" / "clouds.md").read_text(encoding="utf-8")
STACK_PAGES = (
    "README.md",
    "docs/bring-your-own-script.md",
    *(f"docs/{name}.md" for name in ["data", "several-jobs", "profile", "wandb", "gke", "eks"]),
)
"""Pages whose YAML blocks are settings of stacks."""
SMALLEST_MACHINE = Capacity(millicores=2000, memory=8 * 2**30)
"""Smallest machine that README.md allows."""


@pytest.mark.parametrize("name", PAGES)
def test_generated_page_is_current(name: str) -> None:
    assert (DOCS / name).read_text(encoding="utf-8") == PAGES[name], "run `python -m docs.references`"


@pytest.mark.parametrize("name", KINDS)
def test_pages_about_kinds_have_a_row_of_every_kind(name: str) -> None:
    pages = ["kinds.md", "operators.md"] if KINDS[name].operators else ["kinds.md"]
    for page in pages:
        assert f"\n| `{name}` |" in (DOCS / page).read_text(encoding="utf-8"), f"add {name} to docs/{page}"
    resource = KINDS[name].resource
    (row,) = re.findall(r"^\| kinds of job \|(.*?)\|", (PROJECT / "README.md").read_text(encoding="utf-8"), re.M)
    names = row.strip().split(", ")
    assert (resource.kind if resource else "Indexed Job") in names, f"add {name} to the comparison of README.md"


def test_stack_pages_exist_for_exactly_the_existing_stacks() -> None:
    assert sorted(path.stem for path in (DOCS / "stacks").glob("*.md")) == sorted(STACKS)


@pytest.mark.parametrize("part", [part for part in PARTS if part.ends], ids=lambda part: part.name)
def test_versions_page_part_has_a_month_of_support(part: Part) -> None:
    assert part.ends is not None
    left = part.ends - date.today()
    assert left > timedelta(days=30), f"update {part.name} in {part.pin}, or `ends` in docs/versions_reference.py"


@pytest.mark.parametrize(
    "pin",
    ["requirements.in", *(f"trainer/requirements{name}.in" for name in ("", "-frameworks", "-lightning", "-xla"))],
)
def test_versions_page_lists_python_packages(pin: str) -> None:
    names = re.findall(r"(?m)^([\w-]+)(?:\[\w+\])?==", (PROJECT / pin).read_text(encoding="utf-8"))
    listed = {part.package for part in PARTS}
    assert names
    assert set(names) <= listed


def test_versions_page_lists_go_programs() -> None:
    pins = {path.relative_to(PROJECT).as_posix() for path in PROJECT.glob("setup/go/*/go.mod")}
    without_dependencies = {"setup/go/pause/go.mod"}
    development = {"setup/go/actionlint/go.mod"}
    listed = {part.pin for part in PARTS if part.pin.startswith("setup/go/")}
    assert pins - without_dependencies - development == listed, "add the module to docs/versions_reference.py"


def table_rows(title: str) -> list[list[str]]:
    """Return the cells of each row of the table in a section of docs/clouds.md, without the header."""
    body = CLOUDS_PAGE.partition(f"## {title}\n")[2].partition("\n## ")[0]
    rows = [line.strip("|").split("|") for line in body.splitlines() if line.startswith("|")]
    assert len(rows) > 2, title
    return [[cell.strip() for cell in row] for row in rows[2:]]


def test_clouds_page_traps_name_existing_tests() -> None:
    paths = list((PROJECT / "tests").rglob("test_*.py"))
    sources, files = "\n".join(path.read_text(encoding="utf-8") for path in paths), {path.stem for path in paths}
    rows = table_rows("Traps that are handled")
    for _trap, _done, tests in rows:
        named = re.findall(r"`([^`]+)`", tests)
        assert named
        for name in named:
            assert name in PROBLEM_CODES or f"def {name}(" in sources or name in files


def test_clouds_page_tutorial_options_name_existing_keys() -> None:
    reference = (PROJECT / "docs" / "config.md").read_text(encoding="utf-8")
    rows = table_rows("The tutorial's options")
    for _option, keys, _default in rows:
        for key in re.findall(r"`([^`]+)`", keys):
            assert key == "jobs[]" or f"| `{key.rpartition('.')[2]}` |" in reference


def blocks(page: str) -> list[dict[str, Any]]:
    """Return the YAML blocks of a page as settings of stacks, without the prefix `trainyard:` of keys."""
    text = (PROJECT / page).read_text(encoding="utf-8")
    found = [yaml.safe_load(textwrap.dedent(each)) for each in re.findall(r"```yaml\n(.*?)```", text, flags=re.DOTALL)]
    return [
        {key.removeprefix("trainyard:"): value for key, value in each.get("config", each).items()} for each in found
    ]


def test_tour_stacks_are_valid() -> None:
    first, attached, volume = blocks("docs/tour.md")
    config = parse(first)
    (job,) = config.jobs
    assert (job.script, config.platform.kind) == ("/opt/team/train.py", "gke")
    here = {"kubeconfig": str(KUBECONFIG), "context": CLUSTER["context"]}
    assert parse({**attached, "platform": {**attached["platform"], **here}}).platform.kind == "kubeconfig"
    assert volume["spec"]["storageClassName"] == attached["platform"]["bucket"]["storage_class"]


@pytest.mark.parametrize("page", STACK_PAGES)
def test_page_stacks_are_valid_on_smallest_machine(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "train.py").write_text("print()\n", encoding="utf-8")
    (tmp_path / "requirements.txt").write_text("einops==0.8.1\n", encoding="utf-8")
    (tmp_path / "my-images").mkdir()
    monkeypatch.setenv(PROJECT_VARIABLE, str(tmp_path))
    monkeypatch.setattr(validation, "this_machine", lambda: SMALLEST_MACHINE)
    found = blocks(page)
    assert found
    for block in found:
        secrets = {name: True for job in block["jobs"] for name in job.get("secrets", {}).values()}
        parse({"platform": {**CLUSTER, "kubeconfig": str(KUBECONFIG)}, **block}, secrets)


def slug(heading: str) -> str:
    """Return the anchor of a heading, as GitHub forms it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


@pytest.mark.parametrize(
    "page", [PROJECT / "README.md", *DOCS.glob("*.md"), *(DOCS / "stacks").glob("*.md")], ids=lambda page: page.name
)
def test_code_block_fits_the_width_of_a_page_on_github(page: Path) -> None:
    blocks = re.findall(r"(?ms)^ *```\w*\n(.*?)^ *```$", page.read_text(encoding="utf-8"))
    assert [line for block in blocks for line in block.splitlines() if len(line) > GITHUB_COLUMNS] == []


@pytest.mark.parametrize("page", [*PROJECT.glob("*.md"), *DOCS.rglob("*.md")], ids=lambda page: page.name)
def test_page_links_have_existing_targets(page: Path) -> None:
    targets = re.findall(r"\]\((?!https?:)([^)\s]+)\)", page.read_text(encoding="utf-8"))
    for path, _, anchor in (target.partition("#") for target in targets):
        file = page.parent / path if path else page
        assert file.exists(), path
        if anchor:
            headings = re.findall(r"(?m)^#+ (.*)$", file.read_text(encoding="utf-8"))
            assert anchor in {slug(each) for each in headings}, f"{path}#{anchor}"


def upgrade_rows(header: str) -> list[list[str]]:
    """Return the words in backticks of each row of the table with this header in docs/upgrading.md."""
    text = (DOCS / "upgrading.md").read_text(encoding="utf-8")
    rows = text.partition(f"\n{header}\n")[2].partition("\n\n")[0].splitlines()[1:]
    assert rows
    return [re.findall(r"`([^`]+)`", row) for row in rows]


def test_upgrading_page_old_settings_are_rejected() -> None:
    platforms = {"gke": GKE, "eks": {"kind": "eks"}, "kubeconfig": {**CLUSTER, "kubeconfig": str(KUBECONFIG)}}
    for section, *kinds, old, new in upgrade_rows("| section | before | now |"):
        assert f"| `{new}` |" in PAGES["config.md"]
        for kind in kinds or platforms:
            platform, job = dict[str, Any](platforms[kind]), dict[str, Any](JOB)
            (job if section == "jobs" else platform)[old] = 1
            path = f"jobs.0.{old}" if section == "jobs" else f"platform.{old}"
            assert problems_of({"platform": platform, "jobs": [job]}) == [("settings.unknown_key", path)]


def test_upgrading_page_old_scripts_are_rejected() -> None:
    for *old, new in upgrade_rows("| program | before | now |"):
        for script in old:
            job = {"name": "mine", "script": script}
            assert problems_of({"platform": {"kind": "local"}, "jobs": [job]}) == [
                ("job.script.not_in_image", "jobs.0.script")
            ]
        assert parse({"platform": {"kind": "local"}, "jobs": [{"name": "mine", "script": new}]}).jobs[0].script == new


def test_upgrading_page_commands_exist_only_under_their_new_names() -> None:
    for old, new in upgrade_rows("| before | now |"):
        before, now = (each.removeprefix("python -m ") for each in (old, new))
        assert importlib.util.find_spec(now.partition(" ")[0])
        assert importlib.util.find_spec(before) is None


def platform_of(jobs: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a platform with the jobs' accelerators."""
    first = jobs[0]
    if "accelerator" not in first:
        return {"kind": "local"}
    if not is_tpu(first["accelerator"]):
        return {**CLUSTER, "bucket": {"kind": "url", "url": "s3://team"}}
    pool = {key: first[key] for key in ("accelerator", "topology") if key in first}
    return {"kind": "gke", "project": "some-project", "pools": [{"name": "tpus", "check_zones": False, **pool}]}


def valid_jobs(jobs: list[dict[str, Any]]) -> tuple[JobSpec, ...]:
    """Return the jobs of an example, which must be valid on the platform of `platform_of`."""
    config = StackConfig.model_validate_json(json.dumps({"platform": platform_of(jobs), "jobs": jobs}))
    assert configuration_conflicts(config.cloud, config.jobs) == []
    return config.jobs


def test_examples_index_lists_every_page() -> None:
    assert {path.stem for path in EXAMPLES_FOLDER.glob("*.md")} == {*example_names(), "README"}
    listed = re.findall(
        r"^\| \[([a-z0-9-]+)\]\(\1\.md\)", (EXAMPLES_FOLDER / "README.md").read_text(encoding="utf-8"), re.M
    )
    assert sorted(listed) == example_names()


@pytest.mark.parametrize(("name", "index"), EXAMPLE_BLOCKS)
def test_example_block_is_valid_job(name: str, index: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # Trainyard sets this variable in every pod.
    monkeypatch.setenv("TRAINYARD_BUCKET", "file:///bucket")
    for spec in valid_jobs(yaml.safe_load(yaml_blocks(name)[index])):
        if spec.recipe:
            words = program(spec)
            parse_flags(words[words.index("trainer") + 1 :])


@pytest.mark.parametrize("name", example_names())
def test_example_page_has_name_and_command_of_its_job(name: str) -> None:
    assert example_jobs(name)[0]["name"] == name
    assert f"`make up JOB={name}`" in (EXAMPLES_FOLDER / f"{name}.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", example_names())
def test_example_first_block_needs_no_accelerator(name: str) -> None:
    assert all(job.accelerator is None for job in valid_jobs(example_jobs(name)))
