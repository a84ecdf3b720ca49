"""The command of a job's hosts: torchrun, then `-m trainer RECIPE --flag=value`; ranks and addresses are environment.

The command line is the same under every topology and kind. torchrun reads `PET_<OPTION>` for each of its options
(torch/distributed/argparse_util.py). `$(NAME)` is expanded by Kubernetes, never by a shell.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from infra.naming import host_name
from workloads.spec import JobSpec
from workloads.topology import Topology

LAUNCHER = ("python", "-m", "trainer.launch")
RENDEZVOUS_PORT = 29500
"""torchrun's own default port."""
COMPLETION_INDEX = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
"""Where an Indexed Job's pod finds the index of its host; as a label it is there since Kubernetes 1.28 only."""
SHUTDOWN_MARGIN_SECONDS = 5
"""How long before the end of its grace period a host kills training processes that still run."""


@dataclass(frozen=True)
class FieldReference:
    """A value that Kubernetes fills in from the pod itself."""

    path: str
    """Path of the field in the pod, as the downward API has it."""


@dataclass(frozen=True, kw_only=True)
class Command:
    """What a host executes."""

    argv: tuple[str, ...]
    """Program and arguments."""
    environment: Mapping[str, str | FieldReference]
    """Environment variables, in order: a value may refer to one before it."""


def torchrun(spec: JobSpec, shape: Topology) -> Command:
    """The command that joins all hosts of the job into one process group, host 0 being the meeting point.

    `trainer.launch` is torchrun that ends with the exit code of the process that failed first, where torchrun itself
    ends with 1: the job's failure policy decides by that code.
    """
    endpoint = f"{host_name(spec.name, 0)}.{spec.name}.$(TRAINYARD_NAMESPACE).svc:{RENDEZVOUS_PORT}"
    environment: dict[str, str | FieldReference] = {
        "TRAINYARD_JOB": spec.name,
        "TRAINYARD_NAMESPACE": FieldReference("metadata.namespace"),
        "TRAINYARD_NODE": FieldReference("spec.nodeName"),
        "PET_NNODES": str(shape.hosts),
        "PET_NODE_RANK": FieldReference(COMPLETION_INDEX),
        "PET_NPROC_PER_NODE": str(shape.processes_per_host),
        "PET_RDZV_BACKEND": "static",
        "PET_RDZV_ENDPOINT": endpoint,
        "PET_RDZV_ID": spec.name,
        "PET_SHUTDOWN_TIMEOUT": str(max(1, spec.grace_seconds - SHUTDOWN_MARGIN_SECONDS)),
        "OMP_NUM_THREADS": str(shape.threads_per_process),
    }
    environment.update({name: _literal(value) for name, value in spec.environment.items()})
    return Command(argv=(*LAUNCHER, "-m", "trainer", spec.recipe, *_flags(spec)), environment=environment)


def _flags(spec: JobSpec) -> list[str]:
    """The trainer's flags; a switch is given by its name alone."""
    flags = []
    for key, value in spec.flags.items():
        *groups, name = key.replace("_", "-").split(".")
        if isinstance(value, bool):
            flags.append("--" + ".".join([*groups, name if value else f"no-{name}"]))
        else:
            flags.append(f"--{'.'.join([*groups, name])}={_literal(str(value))}")
    return flags


def _literal(text: str) -> str:
    """`text` written so that Kubernetes expands nothing in it."""
    return text.replace("$", "$$")
