"""The command line and environment of a job's hosts, held against torchrun's own parser."""

from __future__ import annotations

import re
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.golden.manifests import examples
from trainer import exit_codes
from trainer.config import parse
from workloads.command import IDLE, LAUNCHER, RETRYABLE_OFFSET, TORCHRUN, Command, FieldReference, host_command, program
from workloads.kinds.parts import FINAL_EXIT_CODES, LEFT_EXIT_CODE
from workloads.mpi import SSHD, launcher_command
from workloads.spec import JobSpec, Recipe
from workloads.topology import topology


def command(**changes: Any) -> Command:
    """The command of a small job."""
    spec = JobSpec.model_validate({"name": "digits", "recipe": "digits", **changes})
    return host_command(spec, topology(spec))


def expanded(text: str, variables: dict[str, str]) -> str:
    """What Kubernetes makes of a value: https://pkg.go.dev/k8s.io/kubernetes/third_party/forked/golang/expansion."""

    def one(match: re.Match[str]) -> str:
        if match[0] == "$$":
            return "$"
        return variables.get(match[1], match[0])

    return re.sub(r"\$\$|\$\(([^)]*)\)", one, text)


def test_flags_become_arguments() -> None:
    flags = {"batch_size": 64, "lr": 0.1, "data.fake": True, "model.fused_norm": False, "name": "a b", "n": 0}
    assert command(flags=flags).argv == (
        *(*LAUNCHER, "-m", "trainer", "digits"),
        *("--batch-size=64", "--lr=0.1", "--data.fake", "--model.no-fused-norm", "--name=a b", "--n=0"),
    )


@given(st.text(), st.dictionaries(st.sampled_from(["A", "TRAINYARD_JOB"]), st.text(max_size=5)))
def test_kubernetes_expands_nothing_of_the_users(text: str, variables: dict[str, str]) -> None:
    found = command(flags={"tag": text}, environment={"LABEL": text})
    assert expanded(found.argv[-1], variables) == f"--tag={text}"
    value = found.environment["LABEL"]
    assert isinstance(value, str)
    assert expanded(value, variables) == text


def test_the_users_environment_wins_where_it_may() -> None:
    assert command(environment={"OMP_NUM_THREADS": 3}).environment["OMP_NUM_THREADS"] == "3"


def test_a_reference_comes_after_what_it_refers_to() -> None:
    names = list(command().environment)
    assert names.index("TRAINYARD_NAMESPACE") < names.index("PET_RDZV_ENDPOINT")


@given(st.integers(1, 64), st.integers(1, 16), st.integers(1, 128))
def test_threads_use_the_cpus_once(hosts: int, processes: int, cpus: int) -> None:
    spec = JobSpec.model_validate(
        {"name": "a", "recipe": "digits", "hosts": hosts, "processes_per_host": processes, "resources": {"cpu": cpus}}
    )
    shape = topology(spec)
    assert shape.world_size == hosts * processes
    assert shape.threads_per_process >= 1
    assert shape.threads_per_process == 1 or shape.threads_per_process * processes <= cpus
    assert (shape.threads_per_process + 1) * processes > cpus


def test_the_rank_is_the_completion_index() -> None:
    rank = command().environment["PET_NODE_RANK"]
    assert isinstance(rank, FieldReference)
    assert "batch.kubernetes.io/job-completion-index" in rank.path


def test_torchrun_understands(monkeypatch: pytest.MonkeyPatch) -> None:
    # torch takes seconds to import; every other test here does without.
    from torch.distributed.run import config_from_args, get_args_parser

    found = command(hosts=4, processes_per_host=2, flags={"epochs": 5, "fake": True}, grace_seconds=60)
    pod = {"metadata.namespace": "training", "spec.nodeName": "node-0"}
    variables: dict[str, str] = {}
    for name, value in found.environment.items():
        if isinstance(value, FieldReference):
            variables[name] = pod.get(value.path, "3")
        else:
            variables[name] = expanded(value, variables)
        monkeypatch.setenv(name, variables[name])
    assert found.argv[: len(LAUNCHER)] == LAUNCHER
    config, _, arguments = config_from_args(get_args_parser().parse_args(list(found.argv[len(LAUNCHER) :])))
    assert (config.min_nodes, config.max_nodes, config.nproc_per_node) == (4, 4, 2)
    assert config.rdzv_backend == "static"
    assert config.rdzv_endpoint == "digits-0.digits.training.svc:29500"
    assert config.rdzv_configs["rank"] == 3
    assert config.run_id == "digits"
    assert config.shutdown_timeout == 55
    assert config.max_restarts == 0
    assert arguments == ["-u", "-m", "trainer", "digits", "--epochs=5", "--fake"]


@pytest.mark.parametrize("example", examples())
def test_the_trainer_understands(example: str) -> None:
    spec, _ = examples()[example]
    argv = torchrun(spec, topology(spec)).argv
    words = [expanded(word, {}) for word in argv[argv.index("trainer") + 1 :]]
    config = parse(words)
    for key, value in spec.flags.items():
        assert getattr(config, {"lr": "learning_rate"}.get(key, key)) == value


def test_the_recipes_are_the_trainers() -> None:
    for recipe in get_args(Recipe):
        assert type(parse([recipe])).__name__ == f"{recipe.capitalize()}Config"


def test_final_exit_codes_are_the_trainers() -> None:
    assert FINAL_EXIT_CODES == (exit_codes.DIVERGED, exit_codes.DATA_ERROR, exit_codes.BAD_CONFIGURATION)
