"""Conventions of the source: registries of clouds and kinds, codes of problems, commands in messages."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import get_args

import pytest

from infra.hardware.ec2 import EC2_FAMILIES
from infra.hardware.gce import GCE_FAMILIES
from infra.make_command import make_command
from infra.operator_releases import RELEASES
from settings.problem import dotted, path_of
from stack.config import CLOUDS, PlatformConfig
from workloads.kinds import DEFAULT, KINDS
from workloads.spec import JobKind, JobSpec

PROJECT = Path(__file__).resolve().parents[2]


def source_files(*excluded: str) -> list[str]:
    """Return the tracked Python files outside tests/, without those of the given pathspecs."""
    words = ["git", "ls-files", "--", "*.py", ":!tests", *excluded]
    return subprocess.run(words, cwd=PROJECT, capture_output=True, text=True, check=True).stdout.split()


def test_cloud_registry_has_every_platform_kind() -> None:
    union = get_args(PlatformConfig)[0]
    kinds = {get_args(config.model_fields["kind"].annotation)[0] for config in get_args(union)}
    assert set(CLOUDS) == kinds


def test_cloud_folders_have_equal_file_names() -> None:
    gcp, aws = ({path.name for path in (PROJECT / "infra" / cloud).glob("*.py")} for cloud in ("gcp", "aws"))
    assert gcp == aws
    assert "cloud.py" in gcp


def test_source_outside_platform_folders_checks_no_platform_type() -> None:
    words = ["git", "grep", "-lE", r"isinstance\([^)]*(Gke|Eks|Local|Kubeconfig)Config", "--", "*.py", ":!tests"]
    found = subprocess.run(words, cwd=PROJECT, capture_output=True, text=True, check=False).stdout.split()
    assert [name for name in found if not re.match(r"infra/(gcp/|aws/|local/|existing\.py)", name)] == []


def test_settings_import_does_not_load_pulumi() -> None:
    code = "import stack.config, sys; print([name for name in sys.modules if name.startswith('pulumi')])"
    words = [sys.executable, "-c", code]
    assert subprocess.run(words, cwd=PROJECT, capture_output=True, text=True, check=True).stdout == "[]\n"


def test_source_outside_stack_config_reads_no_pulumi_config() -> None:
    # bench/handwritten is a program without Trainyard, for comparisons.
    readers = {
        name
        for name in source_files(":!bench/handwritten")
        for node in ast.walk(ast.parse((PROJECT / name).read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and node.attr == "Config" and ast.unparse(node.value) == "pulumi"
    }
    assert readers == {"stack/config.py"}


def test_kind_registry_has_every_job_kind() -> None:
    assert tuple(KINDS) == get_args(JobKind), "list the same kinds in JobKind and KINDS, in the same order"
    assert JobSpec.model_fields["kind"].default == DEFAULT.name


def test_kind_registry_refers_to_existing_operators_and_keys() -> None:
    for kind in KINDS.values():
        assert kind.operators <= RELEASES.keys(), f"add the operator of {kind.name} to infra/operator_releases.py"
        assert kind.pod_types
        assert bool(kind.resource) == bool(kind.operators)
        assert set(kind.own_keys) <= JobSpec.model_fields.keys()


def test_kind_registry_resources_differ() -> None:
    # Commands find the job kind of an object by the version and kind of the API.
    resources = [kind.resource for kind in KINDS.values() if kind.resource]
    found = [("batch/v1", "Job"), *((each.api_version, each.kind) for each in resources)]
    assert len(found) == len(set(found)), f"two job kinds have the same resource: {found}"


def lines_with_names(tree: ast.AST, names: Collection[str]) -> Iterator[int]:
    """Yield the lines that compare a value with a name, or use a name as a key of a table."""
    for node in ast.walk(tree):
        values: list[ast.expr | None] = []
        if isinstance(node, ast.Compare):
            values = [node.left, *node.comparators]
        elif isinstance(node, ast.Dict):
            values = list(node.keys)
        parts = [part for value in values if value for part in ast.walk(value)]
        yield from (part.lineno for part in parts if isinstance(part, ast.Constant) and part.value in names)


@pytest.mark.parametrize(
    ("names", "excluded"),
    [(KINDS, ("workloads/kinds",)), ({*GCE_FAMILIES, *EC2_FAMILIES}, ("infra/hardware", "infra/cost.py"))],
    ids=["job kinds", "machine families"],
)
def test_source_outside_the_tables_compares_no_kind_or_family_name(
    names: Collection[str], excluded: Sequence[str]
) -> None:
    found = {
        name: list(lines_with_names(ast.parse((PROJECT / name).read_text(encoding="utf-8")), names))
        for name in source_files(*(f":!{path}" for path in excluded))
    }
    assert {name: lines for name, lines in found.items() if lines} == {}


CODE = re.compile(r"[a-z][a-z0-9_]*(\.[a-z0-9_]+){2}")
PROBLEM_MAKERS = ("Problem", "_problem", "platform_problem", "pool_problem", "pool_name_problems", "problem")
"""Names of the functions that create a problem with a code."""
PART_MAKERS = ("Invalid", "HardwareError", "with_code", "match_pattern", "_quantity")
"""Names of the functions that create a problem with only the last part of its code."""


def first_texts(*makers: str) -> Iterator[str]:
    """Yield the first constant argument of each call of these functions, if it is a string."""
    for file in (
        file
        for folder in ("infra", "settings", "stack", "workloads", "policy")
        for file in PROJECT.glob(f"{folder}/**/*.py")
    ):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", "")) in makers:
                texts = [each.value for each in node.args if isinstance(each, ast.Constant)]
                yield from (each for each in texts[:1] if isinstance(each, str))


def test_problem_codes_are_unique_and_well_formed() -> None:
    whole = [each for each in first_texts(*PROBLEM_MAKERS) if "." in each and " " not in each]
    for found, form in ((whole, CODE), (list(first_texts(*PART_MAKERS)), re.compile(r"[a-z][a-z0-9_]*"))):
        assert found
        assert [each for each in found if not form.fullmatch(each)] == []
        assert sorted({each for each in found if found.count(each) > 1}) == []


@pytest.mark.parametrize("text", ["", "name", "pools[0].name", "a[1][2]", "metadata.labels.example.com/team"])
def test_dotted_path_round_trips(text: str) -> None:
    assert dotted(path_of(text)) == text


STACK_COMMAND = re.compile(r"`make (up|down|logs|status|exec|tensorboard|shell)`")
"""Pattern of a command that needs a stack but does not name the stack."""


@pytest.mark.parametrize(
    ("stack", "variables", "expected"),
    [
        (None, {}, "`make up`"),
        ("local", {"JOB": ""}, "`make up`"),
        ("other", {}, "`make up STACK=other`"),
        ("other", {"JOB": "elastic"}, "`make up STACK=other JOB=elastic`"),
        ("other", {"STACK": "third"}, "`make up STACK=third`"),
    ],
)
def test_make_command_includes_stack_unless_default(
    stack: str | None, variables: dict[str, str], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("STACK", raising=False)
    if stack is not None:
        monkeypatch.setenv("STACK", stack)
    assert make_command("up", **variables) == expected


def messages(tree: ast.AST) -> Iterator[str]:
    """Yield the strings of a module that are not docstrings."""
    documented = {
        id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documented:
            yield node.value


def test_messages_use_make_command_for_stack_targets() -> None:
    files = [*PROJECT.glob("commands/**/*.py"), *PROJECT.glob("stack/**/*.py"), *PROJECT.glob("infra/operator*.py")]
    found = {
        f"{file.relative_to(PROJECT)}: {text}"
        for file in files
        for text in messages(ast.parse(file.read_text(encoding="utf-8")))
        if STACK_COMMAND.search(text)
    }
    assert found == set()
