"""Command line and environment of a job's hosts, which torchrun and the trainer must be able to parse."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.golden.manifests import examples
from trainer import exit_codes
from trainer.config import parse
from workloads.command import (
    LAUNCHER,
    TORCHRUN,
    Command,
    FieldReference,
    host_command,
    process_layout,
    program,
    restarts_in_place,
)
from workloads.kinds import KINDS
from workloads.kinds.mpi_job import SSHD, launcher_command
from workloads.objects import LOST_LAUNCHER_EXIT_CODES, NON_RETRYABLE_EXIT_CODES, PREEMPTED_EXIT_CODE
from workloads.spec import JobSpec, Recipe
from workloads.validation.conflicts import conflicts

if TYPE_CHECKING:
    from torch.distributed.launcher.api import LaunchConfig


def command(**changes: Any) -> Command:
    """Return the command of a small job."""
    spec = JobSpec.model_validate({"name": "digits", "recipe": "digits", **changes})
    return host_command(spec, process_layout(spec))


def expand(text: str, variables: dict[str, str]) -> str:
    """Return the text of a command or variable as Kubernetes expands it.

    https://pkg.go.dev/k8s.io/kubernetes/third_party/forked/golang/expansion
    """

    def replacement(match: re.Match[str]) -> str:
        if match[0] == "$$":
            return "$"
        return variables.get(match[1], match[0])

    return re.sub(r"\$\$|\$\(([^)]*)\)", replacement, text)


def test_flags_become_arguments_of_the_host_command() -> None:
    flags = {"batch_size": 64, "lr": 0.1, "data.fake": True, "model.fused_norm": False, "name": "a b", "n": 0}
    assert command(flags=flags).argv == (
        *(*LAUNCHER, "-m", "trainer", "digits"),
        *("--batch-size=64", "--lr=0.1", "--data.fake", "--model.no-fused-norm", "--name=a b", "--n=0"),
    )


@given(st.text(), st.dictionaries(st.sampled_from(["A", "TRAINYARD_JOB"]), st.text(max_size=5)))
def test_kubernetes_does_not_expand_user_text_in_the_host_command(text: str, variables: dict[str, str]) -> None:
    found = command(flags={"tag": text}, environment={"LABEL": text})
    assert expand(found.argv[-1], variables) == f"--tag={text}"
    value = found.environment["LABEL"]
    assert isinstance(value, str)
    assert expand(value, variables) == text


def test_user_environment_overrides_the_default_of_the_host_command() -> None:
    assert command(environment={"OMP_NUM_THREADS": 3}).environment["OMP_NUM_THREADS"] == "3"


def test_host_command_sets_the_namespace_before_the_rendezvous_endpoint() -> None:
    # Kubernetes expands references only to variables that precede them.
    names = list(command().environment)
    assert names.index("TRAINYARD_NAMESPACE") < names.index("PET_RDZV_ENDPOINT")


@given(st.integers(1, 64), st.integers(1, 16), st.integers(1, 128))
def test_process_layout_threads_fill_the_cpus(hosts: int, processes: int, cpus: int) -> None:
    spec = JobSpec.model_validate(
        {"name": "a", "recipe": "digits", "hosts": hosts, "processes_per_host": processes, "resources": {"cpu": cpus}}
    )
    layout = process_layout(spec)
    assert layout.world_size == hosts * processes
    assert layout.threads_per_process >= 1
    assert layout.threads_per_process == 1 or layout.threads_per_process * processes <= cpus
    assert (layout.threads_per_process + 1) * processes > cpus


def torchrun_config(host: Command) -> tuple[LaunchConfig, list[str]]:
    """Return torchrun's configuration, and the arguments of the program that torchrun starts, for a host command.

    The environment must have the command's variables.
    """
    # Import torch here, because it takes seconds and most tests of this file do not need it.
    from torch.distributed.run import config_from_args, get_args_parser

    config, _, arguments = config_from_args(get_args_parser().parse_args(list(host.argv[len(LAUNCHER) :])))
    return config, arguments


def test_torchrun_parser_accepts_host_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    # torchrun creates a folder of logs and does not remove it.
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    found = command(hosts=4, processes_per_host=2, flags={"epochs": 5, "fake": True}, grace_seconds=60)
    pod = {"metadata.namespace": "training", "spec.nodeName": "node-0"}
    variables: dict[str, str] = {}
    for name, value in found.environment.items():
        if isinstance(value, FieldReference):
            variables[name] = pod.get(value.path, "3")
        else:
            variables[name] = expand(value, variables)
        monkeypatch.setenv(name, variables[name])
    assert found.argv[: len(LAUNCHER)] == LAUNCHER
    config, arguments = torchrun_config(found)
    assert (config.min_nodes, config.max_nodes, config.nproc_per_node) == (4, 4, 2)
    assert config.rdzv_backend == "static"
    assert config.rdzv_endpoint == "digits-0.digits.training.svc:29500"
    assert config.rdzv_configs["rank"] == 3
    assert config.run_id == "digits"
    assert config.shutdown_timeout == 55
    assert config.max_restarts == 1
    assert arguments == ["-u", "-m", "trainer", "digits", "--epochs=5", "--fake"]


@pytest.mark.parametrize("example", [name for name, (spec, _) in examples().items() if spec.recipe])
def test_trainer_parser_accepts_flags_of_example(example: str) -> None:
    spec, _ = examples()[example]
    argv = program(spec)
    words = [expand(word, {}) for word in argv[argv.index("trainer") + 1 :]]
    config = parse(words)
    for key, value in spec.flags.items():
        assert getattr(config, {"lr": "learning_rate"}.get(key, key)) == value


def test_trainer_has_every_recipe_of_the_settings() -> None:
    for recipe in get_args(Recipe):
        assert type(parse([recipe])).__name__ == f"{recipe.capitalize()}Config"


def test_exit_codes_of_job_policies_equal_those_of_the_trainer() -> None:
    non_retryable = (exit_codes.DIVERGED, exit_codes.DATA_ERROR, exit_codes.SLOW_LINK, exit_codes.BAD_CONFIGURATION)
    assert non_retryable == NON_RETRYABLE_EXIT_CODES
    assert PREEMPTED_EXIT_CODE == exit_codes.PREEMPTED


def test_non_retryable_exit_codes_equal_those_of_the_launcher() -> None:
    # Import this module here, because it imports torch, which takes seconds.
    from trainer.restarts import agent

    assert frozenset(NON_RETRYABLE_EXIT_CODES) == agent.NON_RETRYABLE_EXIT_CODES


def test_exit_codes_of_lost_launchers_exclude_those_of_failed_ranks() -> None:
    failed = {exit_codes.DIVERGED, exit_codes.HANG, exit_codes.RESTARTS_USED, exit_codes.STORAGE_ERROR, 1}
    signals = (signal.SIGABRT, signal.SIGBUS, signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM)
    # A launcher that restarts its ranks exits with 256 - N if signal N ended a rank (trainer/restarts/agent.py).
    assert not (failed | {256 - number for number in signals}) & set(LOST_LAUNCHER_EXIT_CODES)
    assert PREEMPTED_EXIT_CODE in LOST_LAUNCHER_EXIT_CODES


@pytest.mark.parametrize(
    ("changes", "is_in_place"),
    [
        ({}, True),
        ({"restarts": 0}, False),
        ({"hosts": 64, "restarts": 7}, True),
        ({"rendezvous": "c10d"}, False),
        ({"elastic": {"min_hosts": 1, "max_hosts": 2}}, False),
        ({"recipe": None, "script": "train.py"}, True),
        ({"recipe": None, "script": "train.py", "torchrun": False}, False),
        # A user's image has torchrun instead of Trainyard's launcher.
        ({"recipe": None, "script": "train.py", "image": "example.com/own:1"}, False),
        *(({"kind": kind}, False) for kind in ("pytorch-job", "mpi-job", "jobset", "train-job")),
    ],
)
def test_only_indexed_jobs_with_trainyards_launcher_restart_in_place(
    changes: dict[str, Any], is_in_place: bool
) -> None:
    spec = JobSpec.model_validate({"name": "digits", "recipe": "digits", **changes})
    assert restarts_in_place(spec) is is_in_place
    found = host_command(spec, process_layout(spec)).environment.get("PET_MAX_RESTARTS")
    if is_in_place:
        assert found == str(spec.restarts)
    else:
        assert found is None or spec.elastic


def script_command(**changes: Any) -> Command:
    """Return the command of a small job with a script."""
    spec = JobSpec.model_validate({"name": "own", "script": "train.py", "args": ("a b", "$HOME"), **changes})
    return host_command(spec, process_layout(spec))


def test_script_runs_under_the_launcher_of_its_image() -> None:
    assert script_command().argv == (*LAUNCHER, "train.py", "a b", "$$HOME")
    assert script_command(image="example.com/own:1").argv == (*TORCHRUN, "train.py", "a b", "$$HOME")
    assert script_command(image="frameworks").argv[: len(LAUNCHER)] == LAUNCHER
    # Ray's image has torch, but not the trainer.
    assert script_command(image="ray").argv[: len(TORCHRUN)] == TORCHRUN
    assert script_command(kind="mx-job", image="example.com/own:1").argv == ("python", "train.py", "a b", "$$HOME")
    assert "PET_NNODES" not in script_command(kind="mx-job").environment


def test_xla_job_sets_pjrt_device_and_needs_a_launcher_only_on_several_hosts() -> None:
    on_one_host = command(runtime="xla")
    assert on_one_host.argv == ("python", "-m", "trainer", "digits")
    assert on_one_host.environment["PJRT_DEVICE"] == "CPU"
    assert command(runtime="xla", hosts=2).argv == (*LAUNCHER, "-m", "trainer", "digits")
    on_gpus = command(
        runtime="xla", accelerator="nvidia-tesla-v100", accelerators_per_host=2, image="example.com/xla:1"
    )
    assert on_gpus.environment["PJRT_DEVICE"] == "CUDA"
    assert "PJRT_DEVICE" not in command().environment


@pytest.mark.parametrize("keys", [{"kind": "mx-job"}, {"torchrun": False}])
def test_single_process_of_a_host_gets_all_cpus(keys: dict[str, Any]) -> None:
    gpus: dict[str, Any] = {"accelerator": "nvidia-l4", "accelerators_per_host": 4, "resources": {"cpu": "8"}}
    spec = JobSpec.model_validate({"name": "a", "script": "/a.py", "image": "example.com/a:1", **gpus, **keys})
    assert not conflicts(spec)
    environment = host_command(spec, process_layout(spec)).environment
    assert (environment["TRAINYARD_PROCESSES_PER_HOST"], environment["OMP_NUM_THREADS"]) == ("1", "8")


def test_gpu_host_runs_one_process_per_gpu() -> None:
    assert command(accelerator="nvidia-tesla-v100", accelerators_per_host=2).environment["PET_NPROC_PER_NODE"] == "2"


@pytest.mark.parametrize(("keys", "count"), [({"recipe": "digits"}, "2"), ({"script": "train.py"}, "8")])
def test_mpirun_starts_recipe_once_per_host_and_script_once_per_process(keys: dict[str, Any], count: str) -> None:
    values = {"name": "a", "kind": "mpi-job", "hosts": 2, "processes_per_host": 4, **keys}
    spec = JobSpec.model_validate(values)
    layout = process_layout(spec)
    argv = launcher_command(spec, layout, host_command(spec, layout)).argv
    start = argv.index("mpirun")
    assert argv[start : start + 3] == ("mpirun", "-np", count)


def test_sshd_reads_no_configuration_file_and_uses_an_unprivileged_port() -> None:
    words = " ".join(SSHD)
    assert "-f /dev/null" in words
    assert int(words.partition("-p ")[2].split()[0]) > 1024


@pytest.mark.parametrize(
    ("kind", "code"), [("indexed-job", 75), ("mpi-job", 75), ("pytorch-job", 203), ("mx-job", 203)]
)
def test_idle_command_waits_until_sigterm(kind: str, code: int) -> None:
    script = {"recipe": None, "script": "/opt/a.py"}
    _, *arguments = command(kind=kind, interactive=True, **({} if KINDS[kind].runs_recipes else script)).argv
    with subprocess.Popen([sys.executable, *arguments]) as process:
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(timeout=0.5)
        process.send_signal(signal.SIGTERM)
        # Kubernetes replaces an evicted host only after a nonzero status; the training-operator needs 128 or more.
        assert process.wait(timeout=30) == code


def test_torchrun_parser_accepts_elastic_host_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    # torchrun creates a folder of logs and does not remove it.
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    found = command(elastic={"min_hosts": 1, "max_hosts": 3}, restarts=5)
    variables: dict[str, str] = {"TRAINYARD_NAMESPACE": "training"}
    for name, value in found.environment.items():
        if isinstance(value, str):
            monkeypatch.setenv(name, expand(value, variables))
    config, _ = torchrun_config(found)
    assert (config.min_nodes, config.max_nodes, config.max_restarts) == (1, 3, 5)
    assert config.rdzv_backend == "c10d"
    assert found.environment["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] == "1"
    assert config.rdzv_configs == {"join_timeout": "1500", "last_call_timeout": "10", "timeout": 900}
