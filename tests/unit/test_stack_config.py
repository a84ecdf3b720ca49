"""Reading a stack file: accepted and rejected content, and the output of `python -m stack.config`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from infra.make_command import COMMAND_VARIABLE, secret_command
from settings.problems import ConfigError
from stack.config import load_file, main, parse, with_examples
from workloads.spec import example_jobs, example_names

PROJECT = Path(__file__).parents[2]
GKE = {"kind": "gke", "project": "some-project"}


def write(folder: Path, text: str) -> Path:
    """Write a stack file and return its path."""
    path = folder / "Pulumi.test.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_load_file_keys_without_namespace_are_accepted(tmp_path: Path) -> None:
    path = write(tmp_path, "config: {platform: {kind: local}, jobs: [], 'gcp:project': x}")
    assert load_file(path).jobs == ()


def test_load_file_quantities_are_canonical(tmp_path: Path) -> None:
    text = (
        "config: {platform: {kind: local}, jobs: [{name: a, recipe: digits, resources: {cpu: 0.25, memory: 1024Mi}}]}"
    )
    (job,) = load_file(write(tmp_path, text)).jobs
    assert (job.resources.cpu, job.resources.memory) == ("250m", "1Gi")


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("config: [", "Pulumi.test.yaml: not YAML: "),
        ("- 1", "Pulumi.test.yaml: has no mapping `config:`"),
        ("encryptionsalt: x", "trainyard:platform: is missing"),
        ("config: {trainyard:platform: {kind: local}}", "trainyard:jobs: is missing"),
    ],
)
def test_main_invalid_file_is_rejected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, part: str
) -> None:
    assert main([str(write(tmp_path, text))]) == 1
    assert part in capsys.readouterr().err


def test_main_missing_file_lists_stacks(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["Pulumi.none.yaml"]) == 1
    output = capsys.readouterr().err
    assert "dev, eks, eks-p5, gke-h200, gke-tpu" in output


@pytest.mark.parametrize(("program", "option"), [("", "`STACK=`"), ("trainyard", "`--stack`")])
def test_missing_file_names_the_option_of_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, option: str
) -> None:
    monkeypatch.setenv(COMMAND_VARIABLE, program)
    write(tmp_path, "config: {}")
    with pytest.raises(ValueError, match=f"name one of them with {option}"):
        load_file(tmp_path / "Pulumi.none.yaml")


def test_load_file_dangling_link_names_its_target_and_is_not_suggested(tmp_path: Path) -> None:
    (tmp_path / "Pulumi.dangling.yaml").symlink_to("/nowhere.yaml")
    write(tmp_path, "config: {}")
    with pytest.raises(ValueError, match=r"^Pulumi.dangling.yaml: links to /nowhere.yaml, which does not exist;"):
        load_file(tmp_path / "Pulumi.dangling.yaml")
    with pytest.raises(ValueError, match=rf"^Pulumi.none.yaml: no such file; {tmp_path} has the stacks: test; name"):
        load_file(tmp_path / "Pulumi.none.yaml")


def test_stack_config_command_reports_problems(tmp_path: Path) -> None:
    path = write(tmp_path, "config: {platform: {kind: local, node: 1}, jobs: []}")
    done = subprocess.run(
        [sys.executable, "-m", "stack.config", str(path)], cwd=PROJECT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.splitlines() == [
        f"{path}: 1 problem",
        "trainyard:platform.node = 1: unknown key; write nodes; allowed here: kind, name, nodes, port, namespace",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("platform: {kind: local}", r"platform: top-level key is ignored; move it under `config:`"),
        ("confg:\n  trainyard:platform: {kind: local}", r"confg: unknown top-level key; write `config:`"),
        ("config: &a\n  trainyard:platform: *a", r"value of trainyard:platform is an alias of the node at line"),
        (
            "config:\n  trainyrd:platform: {kind: local}",
            r"trainyrd:platform: unknown namespace; write trainyard:platform",
        ),
    ],
)
def test_load_file_ignored_settings_are_rejected(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load_file(write(tmp_path, text))


def test_load_file_numbers_as_text_are_accepted(tmp_path: Path) -> None:
    # `pulumi config set trainyard:budget 30` writes the number as text.
    config = load_file(write(tmp_path, "config: {platform: {kind: local}, jobs: [], budget: '30', ttl_hours: '1.5'}"))
    assert (config.budget, config.ttl_hours) == (30, 1.5)


def test_load_file_duplicate_key_is_rejected(tmp_path: Path) -> None:
    # Most YAML readers silently use the last value.
    text = "config:\n  trainyard:jobs: []\n  trainyard:platform: {kind: local, nodes: 1, nodes: 2}\n"
    with pytest.raises(ValueError, match="the key nodes appears twice on line 3; write it once"):
        load_file(write(tmp_path, text))
    text = "config:\n  trainyard:jobs: []\n  trainyard:jobs: []\n"
    with pytest.raises(ValueError, match="the key trainyard:jobs appears on lines 2 and 3; write it once"):
        load_file(write(tmp_path, text))


def test_load_file_key_with_and_without_namespace_is_rejected(tmp_path: Path) -> None:
    text = "config: {trainyard:platform: {kind: local}, trainyard:jobs: [], jobs: [pytorch-gloo]}"
    with pytest.raises(ValueError, match="trainyard:jobs"):
        load_file(write(tmp_path, text))


def test_main_folder_or_binary_file_is_rejected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "Pulumi.bytes.yaml").write_bytes(b"\xff")
    assert main([str(tmp_path), str(tmp_path / "Pulumi.bytes.yaml")]) == 1
    folder, text = capsys.readouterr().err.splitlines()
    assert folder == f"{tmp_path}: cannot be read (Is a directory); use a readable file"
    assert text == "Pulumi.bytes.yaml: is not UTF-8 text; save it as UTF-8"


def test_main_heading_of_problems_shows_the_value_of_the_job_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("JOB", "typo")
    path = write(tmp_path, "config: {platform: {kind: local}, jobs: []}")
    assert main([str(path)]) == 1
    assert capsys.readouterr().err.startswith(f"{path} with JOB=typo")


def test_load_file_secret_must_be_encrypted(tmp_path: Path) -> None:
    job = "{name: a, recipe: digits, resources: {cpu: 1m, memory: 1Gi}, secrets: {WANDB_API_KEY: wandb}}"
    text = f"config: {{platform: {{kind: local}}, jobs: [{job}], 'secrets:wandb': {{secure: v1:abc}}}}"
    assert load_file(write(tmp_path, text)).jobs[0].secrets == {"WANDB_API_KEY": "wandb"}
    with pytest.raises(ValueError, match="in plain text"):
        load_file(write(tmp_path, text.replace("{secure: v1:abc}", "abc")))


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        ("'secrets:wandb': hunter2, 'secrets:hub': {secure: v1:abc}", "secrets"),
        ("'aws:region': us-west-2, 'gcp:credentials': hunter2", "setting"),
    ],
)
def test_load_file_unused_or_provider_secret_in_plain_text_is_rejected(
    tmp_path: Path, settings: str, code: str
) -> None:
    text = f"config: {{platform: {{kind: local}}, jobs: [], {settings}}}"
    with pytest.raises(ConfigError) as caught:
        load_file(write(tmp_path, text))
    assert [each.code for each in caught.value.problems] == [f"stack.{code}.in_clear"]
    assert "hunter2" not in str(caught.value)
    assert load_file(write(tmp_path, text.replace("hunter2", "{secure: v1:def}"))).jobs == ()
    # `gcp:credentials` may be the path of a key file, which is not a secret.
    if code == "setting":
        assert load_file(write(tmp_path, text.replace("hunter2", "/root/key.json"))).jobs == ()


def test_jobs_may_be_names_of_examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = example_names()[0]
    path = write(tmp_path, f"config: {{platform: {{kind: local}}, jobs: [{name}]}}")
    found = with_examples({"jobs": [name]})["jobs"]
    assert found == example_jobs(name)
    monkeypatch.setenv("JOB", "digits-jobset, digits-train-job")
    assert [each["kind"] for each in with_examples({"jobs": []})["jobs"]] == ["jobset", "train-job"]
    monkeypatch.setenv("JOB", "none")
    with pytest.raises(ValueError, match='"none"'):
        load_file(path)


@pytest.mark.parametrize(
    ("platform", "job", "images", "builds"),
    [
        ({"kind": "local"}, {"recipe": "digits"}, {"trainer"}, False),
        (GKE, {"recipe": "digits"}, {"trainer"}, True),
        (GKE, {"script": "/a.py", "image": "example.com/a:1"}, set(), False),
        (GKE | {"image": {"prebuilt": f"example.com/a@sha256:{'0' * 64}"}}, {"recipe": "digits"}, {"trainer"}, False),
        (GKE | {"zone": "us-central2-b"}, {"recipe": "digits", "accelerator": "v4-8"}, {"xla"}, True),
    ],
)
def test_builtin_images_are_the_jobs_images_and_are_built_unless_local_or_prebuilt(
    platform: dict[str, Any], job: dict[str, Any], images: set[str], builds: bool
) -> None:
    pools = {"pools": [{"name": "tpus", "accelerator": "v4-8"}]} if "accelerator" in job else {}
    config = parse({"platform": platform | pools, "jobs": [{"name": "a", **job}]})
    assert config.builtin_images == images
    assert config.builds_images is builds


def test_error_for_a_misspelled_example_suggests_a_similar_one_and_shows_the_option(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "Pulumi.dev.yaml"
    file.write_text("config:\n  trainyard:platform: {kind: local}\n  trainyard:jobs: []\n", encoding="utf-8")
    monkeypatch.setenv("JOB", "digits-ray,pytorch-glo")
    monkeypatch.setenv(COMMAND_VARIABLE, "trainyard")
    assert main([str(file)]) == 1
    problem = " ".join(capsys.readouterr().err.split())
    assert f"{file} with --job digits-ray,pytorch-glo instead of its jobs" in problem
    assert "did you mean pytorch-gloo?" in problem


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        ("", "`pulumi config set --secret secrets:key` in `make shell STACK=dev`"),
        ("trainyard", "`trainyard config --stack dev set --secret secrets:key`"),
    ],
)
def test_secret_command_uses_the_program_that_the_user_runs(
    program: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STACK", "dev")
    monkeypatch.setenv(COMMAND_VARIABLE, program)
    assert secret_command("secrets:key") == expected
