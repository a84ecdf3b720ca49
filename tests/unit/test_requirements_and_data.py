"""Packages and data of a job: rules of `requirements` and `data`, and the layer over the job's image."""

from __future__ import annotations

import hashlib
import os
import sys
import traceback
from pathlib import Path
from typing import Any

import pytest

from images.layer.install import changed_packages, conflict
from infra.builtin_images import JobLayer
from infra.local import provider
from infra.local.trainer_image import (
    LayerError,
    explanation,
    image_reference,
    layer_inputs,
    layer_of_inputs,
    write_context,
)
from infra.project import PROJECT_VARIABLE
from settings.problem import Invalid
from stack.config import parse
from stack.run_record import run_records
from stack.validation import data_source
from tests.problems import problems_of
from tests.unit.stack_settings import CLUSTER, KUBECONFIG, error_lines, job
from workloads.command import program
from workloads.spec import JobSpec
from workloads.user_files import (
    DATA_PATH,
    HIDDEN_FOLDERS,
    MAX_REQUIREMENTS_BYTES,
    MAX_SCRIPT_BYTES,
    USER,
    DataSource,
    read_requirements,
)

GKE = {"kind": "gke", "project": "some-project", "pools": [{"name": "cpu", "machine_type": "n2-standard-8"}]}
PREBUILT = {**GKE, "image": {"prebuilt": f"example.com/a@sha256:{'1' * 64}"}}
CLUSTER_WITH_CLAIM = {**CLUSTER, "kubeconfig": str(KUBECONFIG)}
CLUSTER_WITH_URL = {**CLUSTER_WITH_CLAIM, "bucket": {"kind": "url", "url": "s3://team/runs"}}
IMAGENET = {"recipe": "imagenet", "resources": {"cpu": "1m", "memory": "900Mi"}}

INDEX_WITH_PASSWORD = "https://me:hunter2@example.com/simple"  # pragma: allowlist secret


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of a project with a requirements file and a folder of data."""
    monkeypatch.setenv(PROJECT_VARIABLE, str(tmp_path))
    (tmp_path / "requirements.txt").write_text("# mine\ncowsay==6.1  # a cow\n", encoding="utf-8")
    (tmp_path / "data").mkdir()
    return tmp_path


def on(platform: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """Return a configuration with one job on a platform."""
    return {**job(**changes), "platform": platform}


def test_requirements_on_platforms_that_build_images_are_accepted(project: Path) -> None:
    for platform in ({"kind": "local"}, GKE):
        config = parse(on(platform, requirements="requirements.txt"))
        layer = config.job_layers["digits"]
        assert (layer.base, layer.requirements) == ("trainer", (project / "requirements.txt").read_text())
        assert layer.name == f"trainer-with-{layer.digests}"
        assert config.jobs[0].image_ref.builtin == "trainer"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "requirements_empty"),
        ("# nothing\n--no-cache\n", "requirements_empty"),
        ("-r more.txt\n", "requirements_other_file"),
        ("-rmore.txt\n", "requirements_other_file"),
        ("cowsay\n-c pins.txt\n", "requirements_other_file"),
        ("--editable .\n", "requirements_other_file"),
        ("./mine\n", "requirements_other_file"),
        ("/opt/mine.whl\n", "requirements_other_file"),
        ("mine @ file:///opt/mine.whl\n", "requirements_other_file"),
        ("cow\0say\n", "requirements_control_character"),
        ("cowsay = 6.1\n", "requirements_syntax"),
        ("cowsay==6.1\nplease install it\n", "requirements_syntax"),
        ("a" * (MAX_REQUIREMENTS_BYTES + 1), "requirements_too_large"),
        (f"--index-url {INDEX_WITH_PASSWORD}\ncowsay\n", "requirements_secret"),
    ],
)
def test_requirements_file_that_cannot_be_installed_has_code(project: Path, text: str, code: str) -> None:
    (project / "requirements.txt").write_text(text, encoding="utf-8")
    values = job(requirements="requirements.txt")
    assert problems_of(values) == [(f"job.requirements.{code}", "jobs.0.requirements")]


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("absent.txt", "requirements_absent"),
        ("data", "requirements_absent"),
        ("../requirements.txt", "requirements_outside"),
        ("https://example.com/requirements.txt", "requirements_url"),
        ("~/requirements.txt", "requirements_url"),
        ("latin.txt", "requirements_not_utf8"),
    ],
)
def test_requirements_path_outside_project_or_not_text_has_code(project: Path, path: str, code: str) -> None:
    (project / "latin.txt").write_bytes(b"caf\xe9\n")
    with pytest.raises(Invalid) as caught:
        read_requirements(path, project)
    assert caught.value.code == code


def test_requirements_may_name_urls_versions_and_markers(project: Path) -> None:
    text = "cowsay[all]>=6,<7; python_version > '3'\nmine @ https://example.com/m.whl\n-i https://example.com\n"
    (project / "requirements.txt").write_text(text, encoding="utf-8")
    assert read_requirements("./requirements.txt", project) == text


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize(
    ("values", "code"),
    [
        (on({"kind": "local"}, image="example.com/a:1"), "with_user_image"),
        (
            on({"kind": "local"}, recipe=None, script="/opt/trainyard/serve.py", torchrun=False, image="stores"),
            "no_installer",
        ),
        (on(PREBUILT), "not_built"),
        (on(CLUSTER_WITH_CLAIM), "not_built"),
    ],
)
def test_requirements_with_an_image_that_cannot_get_packages_have_code(values: dict[str, Any], code: str) -> None:
    values["jobs"][0]["requirements"] = "requirements.txt"
    assert problems_of(values) == [(f"job.requirements.{code}", "jobs.0.requirements")]


def test_run_record_has_the_digest_of_the_requirements(project: Path) -> None:
    stack = job(requirements="requirements.txt")
    first = run_records(parse(stack))["digits"]
    (project / "requirements.txt").write_text("cowsay==6.0\n", encoding="utf-8")
    second = run_records(parse(stack))["digits"]
    assert first["requirements_digest"].startswith("sha256:")
    assert first["requirements_digest"] != second["requirements_digest"]


def test_tag_of_an_image_with_packages_has_the_digest_of_the_file() -> None:
    first, second = (JobLayer(base="trainer", requirements=text) for text in ("cowsay==6.1\n", "cowsay==6.0\n"))
    one, two = image_reference(first), image_reference(second)
    assert one.startswith("trainyard.local/layer:trainer-")
    assert one.endswith(f"-{hashlib.sha256(first.requirements.encode()).hexdigest()[:12]}")
    assert one != two
    assert one.rpartition("-")[0] == two.rpartition("-")[0], "both layers must be over the same image"


def test_build_context_of_packages_has_the_file_and_the_installer(tmp_path: Path) -> None:
    layer = JobLayer(base="trainer", requirements="cowsay\n", files=(("inner/more.py", "VALUE = 1\r\n"),))
    folder = write_context(layer, tmp_path / "context")
    assert sorted(path.name for path in folder.iterdir()) == ["Dockerfile", "install.py", "project", "requirements.txt"]
    assert (folder / "project" / "inner" / "more.py").read_bytes() == b"VALUE = 1\r\n"
    assert (folder / "requirements.txt").read_text(encoding="utf-8") == "cowsay\n"


def test_write_context_with_strict_umask_is_readable_by_pods(tmp_path: Path) -> None:
    layer = JobLayer(base="trainer", requirements="cowsay\n", files=(("inner/more.py", "VALUE = 1\n"),))
    before = os.umask(0o077)
    try:
        folder = write_context(layer, tmp_path / "context")
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o777 for path in folder.rglob("*")}
    assert {name: mode for name, mode in modes.items() if mode != 0o644} == {"project": 0o755, "inner": 0o755}
    assert folder.stat().st_mode & 0o777 == 0o700, "other users of this machine must not read the files"


@pytest.fixture
def layer_with_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> JobLayer:
    """Return a layer with packages and source files. The cache folder is a folder of the test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    files = (("a/b.py", "B = 1\r\n"), ("train.py", "print('\u00e9')\n"))
    return JobLayer(base="trainer", requirements="cowsay\n", files=files)


def test_source_files_of_a_layer_are_in_a_folder_instead_of_the_state(layer_with_files: JobLayer) -> None:
    inputs = layer_inputs(layer_with_files)
    assert "B = 1" not in str(inputs)
    assert layer_of_inputs(inputs) == layer_with_files
    packages = JobLayer(base="trainer", requirements="cowsay\n")
    assert layer_of_inputs(layer_inputs(packages)) == packages
    assert layer_with_files.name.startswith(f"{packages.name}-")


def test_folder_of_source_files_is_reused_and_removed_when_it_is_old(layer_with_files: JobLayer) -> None:
    inputs = layer_inputs(layer_with_files)
    assert layer_inputs(layer_with_files) == inputs
    old = Path(inputs["files"])
    os.utime(old, (0, 0))
    new = Path(layer_inputs(JobLayer(base="trainer", files=(("train.py", ""),)))["files"])
    assert [*old.parent.iterdir()] == [new]
    assert layer_of_inputs(layer_inputs(layer_with_files)) == layer_with_files


@pytest.mark.parametrize("platform", [{"kind": "local"}, GKE])
def test_script_too_large_for_a_config_map_is_in_the_image(project: Path, platform: dict[str, Any]) -> None:
    (project / "requirements.txt").unlink()
    (project / "train.py").write_text("print(1)\n", encoding="utf-8")
    (project / "big.json").write_text("1" * MAX_SCRIPT_BYTES, encoding="utf-8")
    stack = on(platform, recipe=None, script="./train.py")
    layer = parse(stack).job_layers["digits"]
    assert (layer.requirements, [path for path, _ in layer.files]) == ("", ["big.json", "train.py"])
    (project / "big.json").write_text("1", encoding="utf-8")
    assert parse(stack).job_layers == {}


@pytest.mark.parametrize("platform", [CLUSTER_WITH_CLAIM, PREBUILT])
@pytest.mark.parametrize(("names", "code"), [(["big.json"], "folder_too_large"), ([], "too_large")])
def test_large_script_on_a_platform_that_builds_no_images_has_code(
    project: Path, platform: dict[str, Any], names: list[str], code: str
) -> None:
    (project / "train.py").write_text("#" if names else "#" * (MAX_SCRIPT_BYTES + 1), encoding="utf-8")
    for name in names:
        (project / name).write_text("1" * MAX_SCRIPT_BYTES, encoding="utf-8")
    values = on(platform, recipe=None, script="./train.py")
    assert problems_of(values) == [(f"job.script.{code}", "jobs.0.script")]


PLAN = """Using Python 3.11.2 environment at: venv
Would uninstall 2 packages
Would install 3 packages
 + cowsay==6.1
 - numpy==2.4.6
 + numpy==1.26.4
 - Torch_Thing==2.15.0
 + Torch_Thing==2.9.0
"""


@pytest.mark.parametrize(
    ("requirements", "sentence"),
    [
        ("cowsay\ntorch-thing<2.10\n", "Torch_Thing: the file needs 2.9.0, but the image has 2.15.0"),
        ("cowsay\n", "numpy: the file's packages need 1.26.4, but the image has 2.4.6"),
    ],
)
def test_conflict_with_the_image_names_package_and_both_versions(requirements: str, sentence: str) -> None:
    changes = changed_packages(PLAN)
    assert changes == [("numpy", "2.4.6", "1.26.4"), ("Torch_Thing", "2.15.0", "2.9.0")]
    assert conflict(changes, requirements).startswith(f"requirements: {sentence}")


def test_conflict_in_the_provider_is_reported_without_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise LayerError("requirements: numpy: the file needs 1")

    monkeypatch.setattr(sys, "tracebacklimit", 1000, raising=False)
    monkeypatch.setattr(provider, "load_images", fail)
    properties = {"owner": "/a", "stack": "a", "name": "a", "nodes": 1.0, "port": 0.0, "images": []}
    with pytest.raises(RuntimeError) as caught:
        provider.NodeImagesProvider().create(properties)
    # The provider sets `sys.tracebacklimit` to 0, which also applies to `format_exception`.
    assert "".join(traceback.format_exception(caught.value)) == "RuntimeError: requirements: numpy: the file needs 1\n"


@pytest.mark.parametrize("prefix", ["", "#7 1.203 ", "1.203 "])
def test_explanation_is_the_last_line_of_the_installer(prefix: str) -> None:
    output = f"STEP 5\nrequirements: first\n{prefix}requirements: numpy: the file needs 1\nError: exit status 1\n"
    assert explanation(output) == "requirements: numpy: the file needs 1"
    assert explanation("Error: no space left on device\n") == ""


def test_explanation_of_a_uv_error_omits_other_output_of_uv() -> None:
    start = "requirements: uv cannot install the packages of the file into the image; uv says: "
    output = f"{start}Using Python 3.11.2 environment at: venv error: No solution found"
    assert explanation(output) == f"{start}No solution found"


@pytest.mark.parametrize(
    ("platform", "data", "location"),
    [
        (GKE, "gs://flowers/all", "gs://flowers/all"),
        (GKE, "s3://flowers", "s3://flowers"),
        (GKE, "sets/flowers/", "$(TRAINYARD_BUCKET)/sets/flowers"),
        (CLUSTER_WITH_URL, "flowers", "$(TRAINYARD_BUCKET)/flowers"),
        (CLUSTER_WITH_CLAIM, "flowers", "/bucket/flowers"),
    ],
)
def test_data_in_a_bucket_has_location(platform: dict[str, Any], data: str, location: str) -> None:
    config = parse(on(platform, **IMAGENET, data=data))
    assert data_source(config.cloud, config.jobs[0]) == DataSource(location=location)


def test_data_folder_on_this_machine_is_mounted(project: Path, tmp_path: Path) -> None:
    for data in ("data", "./data", str(tmp_path / "data")):
        config = parse(job(data=data))
        assert data_source(config.cloud, config.jobs[0]) == DataSource(location=DATA_PATH, folder=project / "data")


@pytest.mark.parametrize(
    ("platform", "data", "code"),
    [
        *((GKE, data, "data_folder_in_cloud") for data in ("/mnt/flowers", "./flowers", "../a", "~/a", "a/../../b")),
        (GKE, "gs://", "data_url"),
        (GKE, "https://example.com/a", "data_url"),
        (GKE, "gs://flowers/a?b", "data_url"),
        (GKE, "my flowers", "data_bucket_path"),
        ({"kind": "local"}, "gs://flowers", "data_url_on_local"),
        ({"kind": "local"}, "~/flowers", "data_home"),
        ({"kind": "local"}, "absent", "data_absent"),
        ({"kind": "local"}, "requirements.txt", "data_absent"),
        ({"kind": "local"}, "/", "data_hidden"),
        ({"kind": "local"}, HIDDEN_FOLDERS[0], "data_hidden"),
    ],
)
@pytest.mark.usefixtures("project")
def test_data_that_pods_cannot_reach_has_code(platform: dict[str, Any], data: str, code: str) -> None:
    assert problems_of(on(platform, **IMAGENET, data=data)) == [(f"job.data.{code}", "jobs.0.data")]


def test_data_that_the_user_of_pods_cannot_read_is_rejected(project: Path) -> None:
    (project / "data").chmod(0o700)
    found = problems_of(job(data="data"))
    assert found == ([] if (project / "data").stat().st_uid == USER else [("job.data.data_unreadable", "jobs.0.data")])


def test_data_folder_on_a_cloud_has_message_with_remedy() -> None:
    (line,) = error_lines(on(GKE, **IMAGENET, data="~/sets/flowers"))
    assert "copy it into the stack's bucket (docs/data.md) and write its path there, `data: flowers`" in line


@pytest.mark.parametrize(
    ("values", "code", "path"),
    [
        ({"data": "gs://flowers"}, "job.data.digits_in_bucket", "jobs.0.data"),
        ({**IMAGENET, "data": "a", "flags": {"data-dir": "gs://b"}}, "job.data_dir.also_data", "jobs.0.flags.data-dir"),
        ({**IMAGENET, "data": "a", "flags": {"fake_data": True}}, "job.data.with_synthetic_images", "jobs.0.data"),
        (
            {**IMAGENET, "data": "a", "flags": {"test_steps": 3}},
            "job.flags.only_for_synthetic_images",
            "jobs.0.flags.test_steps",
        ),
    ],
)
def test_data_that_contradicts_the_recipe_has_code(values: dict[str, Any], code: str, path: str) -> None:
    assert problems_of(on(GKE, **values)) == [(code, path)]


def test_recipe_gets_its_data_as_flags_but_script_does_not() -> None:
    imagenet = {"name": "a", "recipe": "imagenet", "data": "flowers"}
    expected = ("--data-dir=$(TRAINYARD_DATA)", "--no-fake-data")
    assert program(JobSpec.model_validate(imagenet))[-2:] == expected
    files = program(JobSpec.model_validate({**imagenet, "flags": {"fake_data": False, "stream": True}}))
    assert files.count("--no-fake-data") == 1
    assert program(JobSpec.model_validate({**imagenet, "recipe": "language"}))[-1:] == expected[:1]
    script = {"name": "a", "script": "/a.py", "args": ("x",), "data": "flowers"}
    assert program(JobSpec.model_validate(script))[-1] == "x"


def test_flags_of_image_files_are_allowed_with_data() -> None:
    flags = {"stream": True, "image_size": 64}
    assert parse(on(GKE, **IMAGENET, data="flowers", flags=flags)).jobs[0].data == "flowers"
