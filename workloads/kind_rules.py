"""What each kind of job can and cannot express, and the names that its pods get. Pure.

Sources: the operators' own code at the versions of setup/go (training-operator, mpi-operator, JobSet, Trainer).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from infra.naming import LABEL_LIMIT
from workloads.spec import JobKind, JobSpec, Rendezvous

ETCD_SUFFIX = "-etcd"
RANDOM_SUFFIX = "-xxxxx"
"""What Kubernetes appends to the names of an Indexed Job's pods."""
SLICES = "worker"
"""Name of a JobSet's one replicated job: a child Job for each slice."""
TRAIN_JOB_NODES = "node"
"""Name that Trainer v2 asks of the replicated job and of the container that train."""


@dataclass(frozen=True, kw_only=True)
class KindRules:
    """One kind's abilities."""

    suffixes: Callable[[JobSpec], tuple[str, ...]]
    """What its controller appends to the job's name, longest index first, where the result must be a DNS label."""
    rendezvous: tuple[Rendezvous, ...]
    """How torchrun's hosts can meet; empty where no torchrun runs."""
    elastic: bool = False
    """Whether hosts may leave and join."""
    tpu: str = ""
    """Why it cannot run on TPUs; empty where it can."""
    recipes: bool = True
    """Whether it can run the trainer's recipes, which need torch's process group."""
    queues: bool = True
    """Whether Kueue knows it; of any other kind it would start the pods at once."""


_NO_INDEX = "its pods have no completion index, which tells a TPU host its place in the slice"

RULES: Mapping[JobKind, KindRules] = MappingProxyType(
    {
        "indexed-job": KindRules(
            suffixes=lambda spec: (f"-{spec.hosts - 1}",), rendezvous=("static", "c10d", "etcd"), elastic=True
        ),
        "pytorch-job": KindRules(
            suffixes=lambda spec: ("-master-0", f"-worker-{max(0, spec.hosts - 1)}"),
            rendezvous=("static", "c10d"),
            elastic=True,
            tpu=_NO_INDEX,
        ),
        "mpi-job": KindRules(
            suffixes=lambda spec: ("-launcher", f"-worker-{spec.hosts - 1}"),
            rendezvous=("c10d",),
            tpu="there is no MPI between TPU hosts",
        ),
        "mx-job": KindRules(
            suffixes=lambda spec: (
                "-scheduler-0",
                f"-server-{spec.parameter_servers - 1}",
                f"-worker-{spec.hosts - 1}",
            ),
            rendezvous=(),
            tpu="MXNet has no TPU device",
            recipes=False,
            # https://github.com/kubernetes-sigs/kueue/pull/4077
            queues=False,
        ),
        "jobset": KindRules(
            suffixes=lambda spec: (f"-{SLICES}-{spec.slices - 1}-{spec.hosts // spec.slices - 1}{RANDOM_SUFFIX}",),
            rendezvous=("static", "c10d"),
        ),
        "train-job": KindRules(
            suffixes=lambda spec: (f"-{TRAIN_JOB_NODES}-0-{spec.hosts - 1}{RANDOM_SUFFIX}",), rendezvous=("static",)
        ),
    }
)


def longest_suffix(spec: JobSpec) -> str:
    """The longest of what is appended to the job's name."""
    suffixes = RULES[spec.kind].suffixes(spec)
    return max((*suffixes, ETCD_SUFFIX) if spec.meeting == "etcd" else suffixes, key=len)


def longest_name(spec: JobSpec) -> int:
    """The most characters that the job's name may have, so that every name made from it is a DNS label."""
    return LABEL_LIMIT - len(longest_suffix(spec))


def kinds_where(able: Callable[[KindRules], object]) -> str:
    """The kinds that are able, as a message says what to write: one, and in words the others."""
    first, *others = (kind for kind, rules in RULES.items() if able(rules))
    return f"`kind: {first}`{', or else ' if others else ''}{' or '.join(others)}"
