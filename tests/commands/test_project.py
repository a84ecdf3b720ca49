"""Projects outside of the checkout: folder, stack, program and scripts, and the settings that `init` writes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from commands import cli, command_line, doctor, environment
from commands.interrupts import ExitStatus
from commands.stack import settings_without_salt
from commands.stack_settings import PLATFORMS, InvalidSetting, collect, find_script, init, job_name, settings
from infra.make_command import COMMAND_VARIABLE, make_command
from infra.project import CHECKOUT, PROJECT_VARIABLE, project_folder
from stack.config import load_file
from stack.run_record import run_records
from workloads import user_files
from workloads.spec import example_jobs, example_names
from workloads.user_files import is_in_project, read_script


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a project with the stack `dev`. The test runs in a subfolder, as a user of the command `trainyard`."""
    folder = tmp_path / "project"
    (folder / "deep").mkdir(parents=True)
    (folder / "Pulumi.dev.yaml").write_text("config: {}\n", encoding="utf-8")
    # Without `setenv`, the patch would not restore a variable that was not set before.
    for name in ("STACK", PROJECT_VARIABLE):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setenv(COMMAND_VARIABLE, "trainyard")
    monkeypatch.chdir(folder / "deep")
    return folder


def test_project_is_the_nearest_folder_with_a_stack(project: Path) -> None:
    assert command_line.find_project(None) == project
    command_line.use_stack(None, None)
    assert (os.environ["STACK"], project_folder()) == ("dev", project)


def test_project_of_a_make_target_is_the_checkout(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(COMMAND_VARIABLE)
    assert command_line.find_project(None) == CHECKOUT
    assert command_line.find_project(project) == project


def test_folder_without_a_stack_is_an_error_with_both_remedies(project: Path) -> None:
    (project / "Pulumi.dev.yaml").unlink()
    with pytest.raises(click.UsageError, match=r"`trainyard init` writes one, and `--project FOLDER` names another"):
        command_line.use_stack(None, None)


def test_project_is_the_nearest_folder_with_the_state_of_a_stack_without_settings(project: Path) -> None:
    (project / "Pulumi.dev.yaml").unlink()
    states = project / ".trainyard" / "pulumi" / ".pulumi" / "stacks" / "trainyard"
    states.mkdir(parents=True)
    for name in ("mine.json", "mine.json.bak", "mine.json.attrs"):
        (states / name).touch()
    command_line.use_stack(None, None)
    assert (os.environ["STACK"], project_folder()) == ("mine", project)
    command_line.use_stack(None, "other")
    assert (os.environ["STACK"], project_folder()) == ("other", project)


def test_stack_of_several_is_local_unless_named(project: Path) -> None:
    (project / "Pulumi.other.yaml").touch()
    command_line.use_stack(project, None)
    assert os.environ["STACK"] == "local"
    command_line.use_stack(project, "other")
    assert os.environ["STACK"] == "other"


def test_make_command_names_the_project_only_outside_of_it(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PROJECT_VARIABLE, str(project))
    assert make_command("down", STACK="dev") == "`trainyard down --stack dev`"
    monkeypatch.chdir(project.parent)
    assert make_command("down", STACK="dev") == f"`trainyard down --stack dev --project {project}`"


def test_program_folder_of_a_project_starts_the_program_of_the_checkout(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment, "PROJECT", project)
    monkeypatch.setattr(environment, "STATE", project / ".trainyard")
    folder = environment.program_folder()
    found = yaml.safe_load((folder / "Pulumi.yaml").read_text(encoding="utf-8"))
    assert (found["name"], found["runtime"]["options"]["virtualenv"]) == ("trainyard", str(CHECKOUT / ".venv"))
    assert (folder / found["stackConfigDir"]).resolve() == project
    assert str(CHECKOUT) in (folder / "__main__.py").read_text(encoding="utf-8")
    assert (project / ".trainyard" / ".gitignore").read_text(encoding="utf-8") == "*\n"
    monkeypatch.setattr(environment, "PROJECT", CHECKOUT)
    assert environment.program_folder() == CHECKOUT


SCRIPT_STACK = """
config:
  trainyard:platform: {kind: local}
  trainyard:jobs: [{name: mine, script: ./train.py}]
"""
FILES = {
    "train.py": "import helper\n",
    "helper.py": "VALUE = 1\n",
    "inner/more.py": "VALUE = 2\n",
    "settings.json": "{}\n",
    "weights.bin": "0",
    "Pulumi.dev.yaml": "config: {}\n",
    ".hidden/secret.py": "",
    "__pycache__/helper.py": "",
    "results/.gitignore": "*\n",
    "results/run-record.json": "{}",
    "venv/pyvenv.cfg": "",
    "venv/lib/six.py": "",
    "conda/conda-meta/history": "",
    "conda/lib/six.py": "",
}


def write_files(folder: Path, files: dict[str, str]) -> None:
    """Write files into a folder."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")


def test_script_includes_the_source_files_of_its_folder(tmp_path: Path) -> None:
    write_files(tmp_path, FILES)
    script = read_script("./train.py", tmp_path)
    assert set(script.files) == {"train.py", "helper.py", "inner/more.py", "settings.json"}
    (key,) = [key for key, path in script.paths.items() if path == "inner/more.py"]
    assert "/" not in key, "a key of a ConfigMap cannot have a slash"
    before = script.config_map("mine")
    write_files(tmp_path, {"inner/more.py": "VALUE = 3\n"})
    assert read_script("./train.py", tmp_path).config_map("mine") != before


def test_script_includes_linked_folders_with_python_files(tmp_path: Path) -> None:
    names = ("mine/train.py", "shared/util.py", "shared/deep/more.py", "images/a.json", "other.py")
    write_files(tmp_path, dict.fromkeys(names, ""))
    links = {"mine/common": "../shared", "mine/data": "../images", "mine/up": "..", "shared/back": "../mine"}
    for link, target in {**links, "shared/deep/loop": ".."}.items():
        (tmp_path / link).symlink_to(target)
    script = read_script("./train.py", tmp_path / "mine")
    assert set(script.files) == {"train.py", "common/util.py", "common/deep/more.py"}


SEPARATE_STACK = """
config:
  trainyard:platform: {kind: local}
  trainyard:jobs:
    - {name: mine, script: ./train.py, data: ./flowers}
    - {name: other, script: ./train.py, requirements: packages.txt}
"""


def test_script_is_sent_without_requirements_and_data_of_jobs(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PROJECT_VARIABLE, str(project))
    inputs = {"flowers/labels.json": "{}", "packages.txt": "einops\n"}
    write_files(project, {"train.py": "", "notes.txt": "", **inputs, "Pulumi.dev.yaml": SEPARATE_STACK})
    (project / "flowers" / "latin.txt").write_bytes(b"\xe9")  # Not UTF-8, which is an error in a file that is sent.
    config = load_file(project / "Pulumi.dev.yaml")
    assert set(read_script("./train.py", project, config.left_out).files) == {"train.py", "notes.txt"}
    first = run_records(config)["mine"]["script_digest"]
    write_files(project, {"packages.txt": "einops==0.8.1\n"})
    assert run_records(config)["mine"]["script_digest"] == first


def test_script_of_the_checkout_is_sent_alone() -> None:
    assert set(read_script("./images/trainer/network_check.py", CHECKOUT).files) == {"network_check.py"}


def test_examples_need_no_copy_of_their_script_in_a_project(tmp_path: Path) -> None:
    scripts = [job["script"] for name in example_names() for job in example_jobs(name) if "script" in job]
    found = [script for script in scripts if is_in_project(script)]
    assert "./images/frameworks/hf_trainer.py" in found
    assert [read_script(script, tmp_path) for script in found] == [read_script(script, CHECKOUT) for script in found]


def test_script_of_a_project_is_preferred_to_the_script_of_an_example(tmp_path: Path) -> None:
    write_files(tmp_path, {"images/frameworks/hf_trainer.py": "print(1)\n"})
    assert read_script("./images/frameworks/hf_trainer.py", tmp_path).text == "print(1)\n"


@pytest.mark.parametrize("script", ["./bench/measure.py", "./images/../__main__.py"])
def test_other_file_of_the_checkout_is_not_a_script_of_a_project(script: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is not a file of"):
        read_script(script, tmp_path)


def test_script_with_too_large_neighbours_names_the_largest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_files(tmp_path, {"train.py": "", "big.json": "1" * 1000, "small.py": "1"})
    monkeypatch.setattr(user_files, "MAX_LAYER_BYTES", 1001)
    assert read_script("./train.py", tmp_path).num_bytes == 1001
    monkeypatch.setattr(user_files, "MAX_LAYER_BYTES", 1000)
    message = r"has 1,001 bytes together with the source files next to it.*largest of these are big\.json, small\.py"
    with pytest.raises(ValueError, match=message):
        read_script("./train.py", tmp_path)


def test_run_record_has_the_digest_of_the_files_sent(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PROJECT_VARIABLE, str(project))
    write_files(project, {"train.py": "print(1)\n", "helper.py": "", "Pulumi.dev.yaml": SCRIPT_STACK})
    config = load_file(project / "Pulumi.dev.yaml")
    first = run_records(config)["mine"]
    write_files(project, {"helper.py": "VALUE = 1\n"})
    second = run_records(config)["mine"]
    assert first["script_digest"].startswith("sha256:")
    assert first["script_digest"] != second["script_digest"]
    assert re.fullmatch("[0-9a-f]{40}|unknown", first["trainyard_commit"])


def no_question(question: str, default: str) -> str:
    """Fail, because `init` must ask nothing."""
    raise AssertionError(f"{question} {default}")


@pytest.mark.parametrize(
    ("platform", "accelerator"), [(kind, name) for kind, each in PLATFORMS.items() for name in each.pools]
)
def test_init_writes_a_valid_stack_for_each_accelerator(platform: str, accelerator: str, tmp_path: Path) -> None:
    account = {"gke": "my-project-1", "eks": "us-west-2"}[platform]
    given: dict[str, Any] = {"platform": platform, "program": "digits", "hosts": 2, "account": account}
    answers = collect({**given, "accelerator": accelerator}, tmp_path, no_question)
    file = tmp_path / "Pulumi.dev.yaml"
    file.write_text(yaml.safe_dump(settings(answers, "dev")), encoding="utf-8")
    config = load_file(file)
    assert (config.jobs[0].hosts, config.jobs[0].accelerator) == (2, accelerator)
    assert config.cloud.cost_estimate().unpriced == ()


def test_init_writes_the_stack_and_names_the_next_command(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_files(project, {"train.py": "print(1)\n", "helper.py": ""})
    monkeypatch.setenv(PROJECT_VARIABLE, str(project))
    assert init(project, "first", {}) == 0
    found = yaml.safe_load((project / "Pulumi.first.yaml").read_text(encoding="utf-8"))["config"]
    assert found["trainyard:platform"] == {"kind": "local", "nodes": 2}
    assert found["trainyard:jobs"] == [{"name": "train", "script": "./train.py", "hosts": 2}]
    assert "`trainyard up --stack first` creates the cluster" in capsys.readouterr().out


def test_init_of_a_stack_with_a_settings_file_is_an_error(project: Path) -> None:
    with pytest.raises(InvalidSetting, match=r"Pulumi\.dev\.yaml: already exists"):
        init(project, "dev", {})


@pytest.mark.parametrize("missing_steps", [[], ["Kubernetes"]])
def test_init_gives_the_time_of_the_first_run_only_before_set_up(
    missing_steps: list[str], project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PROJECT_VARIABLE, str(project))
    monkeypatch.setattr(doctor, "set_up_steps", lambda: (missing_steps, 8))
    assert init(project, "first", {"program": "digits"}) == 0
    assert ("the first run can take 20 min" in capsys.readouterr().out) == bool(missing_steps)


def test_init_script_without_dot_slash_names_the_project(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_files(project, {"train.py": "print(1)\n"})
    monkeypatch.setenv(PROJECT_VARIABLE, str(project))
    with pytest.raises(InvalidSetting, match=f"is a file of the project {project}, not of the image; write ./train.py"):
        init(project, "first", {"program": "train.py"})


def test_settings_without_salt_removes_the_salt_that_pulumi_adds(project: Path) -> None:
    text = (project / "Pulumi.dev.yaml").read_text(encoding="utf-8")
    with settings_without_salt(project):
        for name in ("dev", "other"):
            with (project / f"Pulumi.{name}.yaml").open("a", encoding="utf-8") as file:
                file.write("encryptionsalt: v1:a:b\n")
    assert (project / "Pulumi.dev.yaml").read_text(encoding="utf-8") == text
    assert not (project / "Pulumi.other.yaml").exists()


def test_settings_without_salt_keeps_what_the_user_writes_meanwhile(project: Path) -> None:
    edited, removed = project / "Pulumi.dev.yaml", project / "Pulumi.removed.yaml"
    removed.write_text("config: {}\n", encoding="utf-8")
    for text in ("config: {}  # a comment\n", "config: [half", "encryptionsalt: v1:a:b\nconfig: [half"):
        edited.write_text("config: {}\n", encoding="utf-8")
        with settings_without_salt(project):
            edited.write_text(text, encoding="utf-8")
            removed.unlink(missing_ok=True)
            (project / "Pulumi.new.yaml").touch()
        assert edited.read_text(encoding="utf-8") == text
    assert (project / "Pulumi.new.yaml").exists()


def test_init_adds_the_requirements_file_of_a_script(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_files(project, {"train.py": "print(1)\n", "requirements.txt": "einops==0.8.1\n"})
    monkeypatch.setenv(PROJECT_VARIABLE, str(project))
    assert init(project, "first", {}) == 0
    assert load_file(project / "Pulumi.first.yaml").jobs[0].requirements == "requirements.txt"
    assert init(project, "second", {"program": "digits"}) == 0
    assert load_file(project / "Pulumi.second.yaml").jobs[0].requirements is None


def test_init_with_an_invalid_requirements_file_leaves_it_out_with_the_reason(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_files(project, {"train.py": "print(1)\n", "requirements.txt": "einops\n-e .\n"})
    monkeypatch.setenv(PROJECT_VARIABLE, str(project))
    assert init(project, "first", {}) == 0
    assert load_file(project / "Pulumi.first.yaml").jobs[0].requirements is None
    reason = " ".join(capsys.readouterr().err.split())
    assert reason.startswith("requirements = requirements.txt: line 2 refers to another file")
    assert reason.endswith("the stack is written without `requirements`")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"platform": "azure"}, "--platform azure: must be one of local, gke, eks"),
        ({"platform": "local", "program": "digit"}, "--program digit: is unknown; write one of digits"),
        ({"platform": "local", "program": "nope.py"}, "--program nope.py: is not a file .* write ./ and the path of a"),
        ({"platform": "local", "program": "digits", "hosts": 0}, "--hosts 0: must be a number of at least 1"),
        (
            {"platform": "local", "program": "digits", "hosts": 9000},
            "--hosts 9000: 9000 hosts of 1 CPU and 2Gi each do",
        ),
        ({"platform": "gke", "program": "digits", "hosts": 1}, "--account is missing; write the project"),
        (
            {"platform": "eks", "program": "digits", "hosts": 1, "account": "us-west-2", "accelerator": "b200"},
            "--accelerator b200: must be one of nvidia-l4, nvidia-tesla-t4",
        ),
    ],
)
def test_init_rejects_wrong_answers(given: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting, match=message) as caught:
        collect(given, tmp_path, lambda _question, default: default)
    assert caught.value.status == ExitStatus.USAGE


def test_init_at_a_terminal_asks_again_after_a_wrong_answer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PROJECT_VARIABLE, str(tmp_path))
    for name in ("src", "src.py"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    typed = iter(
        ["azure", "gke", "digit", "./src", "./src.py", "digits", "0", "2", "", "my-project-1", "b200", "nvidia-l4"]
    )
    answers = collect({}, tmp_path, lambda _question, _default: next(typed))
    assert (answers.platform, answers.hosts, answers.account) == ("gke", 2, "my-project-1")
    assert answers.accelerator == "nvidia-l4"
    errors = capsys.readouterr().err.splitlines()
    names = ["--platform", *["--program"] * 3, "--hosts", "--account", "--accelerator"]
    assert [error.split()[0] for error in errors] == names
    assert errors[1].startswith("--program digit: is unknown; write one of digits, imagenet, language, or a script")
    assert errors[3].startswith(f"--program ./src.py: is not a file of {tmp_path}")


def test_init_of_an_invalid_stack_leaves_no_file(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PROJECT_VARIABLE, str(project))
    with pytest.raises(InvalidSetting, match=r"(?s)Pulumi\.first\.yaml: was not written.*platform\.project"):
        init(project, "first", {"platform": "gke", "program": "digits", "account": "My Project"})
    assert not (project / "Pulumi.first.yaml").exists()


@pytest.mark.parametrize(
    ("names", "expected"),
    [([], "digits"), (["only.py"], "./only.py"), (["a.py", "main.py"], "./main.py"), (["a.py", "b.py"], "digits")],
)
def test_find_script_prefers_usual_names(names: list[str], expected: str, tmp_path: Path) -> None:
    write_files(tmp_path, dict.fromkeys(names, ""))
    assert find_script(tmp_path) == expected


@pytest.mark.parametrize(
    ("program", "name"), [("./My_Model 2.py", "my-model-2"), ("./2.py", "train"), ("digits", "digits")]
)
def test_job_name_is_derived_from_the_program(program: str, name: str) -> None:
    assert job_name(program) == name


def test_init_command_needs_no_stack(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "Pulumi.dev.yaml").unlink()
    words = ["init", "--project", str(project), "--platform", "local", "--program", "digits", "--hosts", "1"]
    assert cli.main(words) == 0
    assert (project / "Pulumi.local.yaml").is_file()
    assert "wrote" in capsys.readouterr().out


CONFIG_PROGRAM = """
import sys
from commands.cli import main
sys.exit(main(["config", "--project", sys.argv[1], "--json"]))
"""


def test_config_shows_settings_of_a_project_with_defaults(project: Path) -> None:
    write_files(project, {"train.py": "print(1)\n", "Pulumi.dev.yaml": SCRIPT_STACK})
    words = [sys.executable, "-c", CONFIG_PROGRAM, str(project)]
    done = subprocess.run(words, cwd=CHECKOUT, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["jobs"][0]["restarts"] == 1


def test_settings_without_salt_keeps_folders_named_like_settings_files(tmp_path: Path) -> None:
    (tmp_path / "Pulumi.local.yaml").mkdir()
    with settings_without_salt(tmp_path):
        (tmp_path / "Pulumi.mine.yaml").mkdir()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["Pulumi.local.yaml", "Pulumi.mine.yaml"]
