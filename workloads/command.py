"""What a job's hosts execute, and the environment in which they find each other. The one place that knows either.

A host runs torchrun and under it `-m trainer RECIPE --flag=value` or a script; in an `mx-job`, under mpirun, and as the
one process of a TPU host, the program by itself. Ranks and addresses are environment, never flags, and nothing sets
here what a kind's operator sets in its pods. torchrun reads `PET_<OPTION>` for each of its options
(torch/distributed/argparse_util.py). `$(NAME)` is expanded by Kubernetes, never by a shell.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from infra.hardware.nccl_environment_script import NcclEnvironmentScript
from workloads.kinds import KINDS
from workloads.kinds.kind import ETCD_SUFFIX
from workloads.spec import JobSpec
from workloads.topology import Topology
from workloads.user_script import path_in_pod

LAUNCHER = ("python", "-m", "trainer.launch")
"""torchrun of the trainer's image, which passes exit codes on."""
TORCHRUN = ("python", "-m", "torch.distributed.run")
"""torchrun of any image with torch; it ends with 1 whatever its processes ended with."""
IDLE = (
    "python",
    "-c",
    "import signal; end = {signal.SIGTERM, signal.SIGINT}; signal.pthread_sigmask(signal.SIG_BLOCK, end); "
    "signal.sigwait(end)",
)
"""Waits to be told to stop; process 1 of a container ignores the signals that it does not ask for."""
RENDEZVOUS_PORT = 29500
"""torchrun's own default port."""
ETCD_PORT = 2379
COMPLETION_INDEX = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
"""Where an Indexed Job's pod finds the index of its host; as a label it is there since Kubernetes 1.28 only."""
CONTROLLER_UID = "metadata.labels['batch.kubernetes.io/controller-uid']"
"""Where a Job's pod finds the identity of this very Job, which a later Job of its name does not share."""
SLICE_INDEX = "metadata.annotations['jobset.sigs.k8s.io/job-index']"
"""Where a JobSet's pod finds the index of its child Job."""
SHUTDOWN_MARGIN_SECONDS = 5
"""How long before the end of its grace period a host kills training processes that still run."""
JOIN_SECONDS = 1500
"""How long hosts wait for each other: pulling a large image takes longer on some than torchrun's 600 seconds."""
LAST_CALL_SECONDS = 10
"""How long an elastic job waits for further hosts once the fewest are there; torchrun's own 30 pass idle each time."""
POD_VARIABLES = ("PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "PYTHONUNBUFFERED=1", "HOME", "TRAINYARD_BUCKET")
"""Variables that come from the image and the pod; mpirun only warns of those that an image does not set."""
STORE_OF_EACH_ROUND = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
"""Hosts tell each other the address of their store in every round. By default torch's rank 0 says it in its first round
only, and a host that joins later waits for it until all give up (seen in 2.15, dynamic_rendezvous.next_rendezvous)."""


@dataclass(frozen=True)
class FieldReference:
    """A value that Kubernetes fills in from the pod itself."""

    path: str
    """Path of the field in the pod, as the downward API has it."""


NAMESPACE = FieldReference("metadata.namespace")
Environment = dict[str, "str | FieldReference"]


@dataclass(frozen=True, kw_only=True)
class Command:
    """What a host executes."""

    argv: tuple[str, ...]
    """Program and arguments."""
    environment: Mapping[str, str | FieldReference]
    """Environment variables, in order: a value may refer to one before it."""


def host_command(spec: JobSpec, shape: Topology, profile: NcclEnvironmentScript | None = None) -> Command:
    """What each host runs, or waits to be told by hand where the job is interactive."""
    environment: Environment = {
        "TRAINYARD_JOB": spec.name,
        "TRAINYARD_NAMESPACE": NAMESPACE,
        "TRAINYARD_NODE": FieldReference("spec.nodeName"),
        "TRAINYARD_HOSTS": str(shape.hosts),
        "TRAINYARD_PROCESSES_PER_HOST": str(shape.processes_per_host),
        **(_rendezvous(spec, shape) if uses_torchrun(spec) else {}),
        **_device(spec, shape),
        "OMP_NUM_THREADS": str(shape.threads_per_process),
    }
    environment.update({name: _literal(value) for name, value in spec.environment.items()})
    return Command(argv=IDLE if spec.interactive else sourced(profile, program(spec)), environment=environment)


def sourced(profile: NcclEnvironmentScript | None, argv: tuple[str, ...]) -> tuple[str, ...]:
    """A program in the environment that a script of its host sets."""
    return argv if profile is None else ("bash", "-c", f'. {profile.script} && exec "$@"', "bash", *argv)


def program(spec: JobSpec) -> tuple[str, ...]:
    """What one host of the job runs to train."""
    if spec.script is not None:
        words = (*_links(spec), _literal(path_in_pod(spec.script)), *map(_literal, spec.args))
        own = LAUNCHER if spec.image is None else TORCHRUN
        return (*own, *words) if uses_torchrun(spec) else ("python", *words)
    words = (*_links(spec), "-m", "trainer", str(spec.recipe), *_flags(spec))
    return (*LAUNCHER, *words) if uses_torchrun(spec) else ("python", *words)


def _links(spec: JobSpec) -> tuple[str, ...]:
    """The check of all links, which then becomes the program that follows."""
    if spec.min_bandwidth_gbps is None:
        return ()
    return ("-m", "trainer.network_check", f"--min-bandwidth-gbps={spec.min_bandwidth_gbps:g}", "--")


def uses_torchrun(spec: JobSpec) -> bool:
    """Return True if torchrun starts the processes of a host.

    The job or its kind may exclude it. One process of XLA has all devices of a TPU host, or of a job's only host.
    """
    if not (spec.torchrun and KINDS[spec.kind].starts_torchrun(spec)):
        return False
    return spec.processes_per_host > 1 or not (spec.tpu or (spec.on_xla and spec.hosts == 1))


def restarts_in_place(spec: JobSpec) -> bool:
    """Return True if the launchers of all hosts start failed ranks again in their pods (trainer/restarts).

    Elastic jobs do so by torchrun's own means. A JobSet, and the JobSet of a TrainJob, recreate all pods at once and
    count that; the training-operator recreates a failed pod at once and counts nothing.
    """
    fixed = KINDS[spec.kind].restarts_in_place and spec.rendezvous_backend == "static"
    return fixed and spec.restarts > 0 and program(spec)[: len(LAUNCHER)] == LAUNCHER


def _rendezvous(spec: JobSpec, shape: Topology) -> Environment:
    """Return torchrun's settings for its hosts to meet, without those that the kind's operator sets."""
    kind, few = KINDS[spec.kind], shape.fewest_hosts
    is_static = spec.rendezvous_backend == "static"
    environment: Environment = {
        "PET_SHUTDOWN_TIMEOUT": str(max(1, spec.grace_seconds - SHUTDOWN_MARGIN_SECONDS)),
        **(STORE_OF_EACH_ROUND if spec.elastic else {}),
        **({"TRAINYARD_RETRYABLE_OFFSET": str(kind.retryable_offset)} if kind.retryable_offset else {}),
        "PET_RDZV_BACKEND": spec.rendezvous_backend,
        "PET_RDZV_CONF": _conf(spec),
        "PET_RDZV_ID": FieldReference(CONTROLLER_UID) if kind.is_one_job and not is_static else spec.name,
        "PET_NNODES": f"{few}:{shape.hosts}" if spec.elastic else str(shape.hosts),
        "PET_NPROC_PER_NODE": str(shape.processes_per_host),
        "PET_RDZV_ENDPOINT": endpoint(spec),
    }
    if is_static:
        environment["PET_NODE_RANK"] = FieldReference(COMPLETION_INDEX)
    if spec.elastic or restarts_in_place(spec):
        environment["PET_MAX_RESTARTS"] = str(spec.restarts)
    set_by_operator = (*kind.operator_variables, *(kind.elastic_variables if spec.elastic else ()))
    return {name: value for name, value in environment.items() if name not in set_by_operator}


def rendezvous_options(spec: JobSpec) -> dict[str, str]:
    """Options of the rendezvous, by the names that its backend gives them."""
    timeout = "join_timeout" if spec.rendezvous_backend == "c10d" else "timeout"
    last_call = {"last_call_timeout": str(LAST_CALL_SECONDS)} if spec.elastic else {}
    return {timeout: str(JOIN_SECONDS), **last_call}


def _conf(spec: JobSpec) -> str:
    return ",".join(f"{name}={value}" for name, value in rendezvous_options(spec).items())


def endpoint(spec: JobSpec) -> str:
    """Where torchrun's hosts meet: host 0 of the job, or its own etcd."""
    if spec.rendezvous_backend == "etcd":
        return f"{etcd_name(spec)}.$(TRAINYARD_NAMESPACE).svc:{ETCD_PORT}"
    return f"{first_host(spec)}.$(TRAINYARD_NAMESPACE).svc:{RENDEZVOUS_PORT}"


def first_host(spec: JobSpec) -> str:
    """Name of host 0 and its Service."""
    return f"{KINDS[spec.kind].first_host(spec.name)}.{spec.name}"


def etcd_name(spec: JobSpec) -> str:
    """Name of the etcd of this job alone."""
    return f"{spec.name}{ETCD_SUFFIX}"


def _device(spec: JobSpec, shape: Topology) -> Environment:
    """What PyTorch/XLA needs to know of its accelerators.

    A TPU host learns its place in its slice from GKE; slices find each other as in
    https://cloud.google.com/kubernetes-engine/docs/how-to/tpu-multislice.
    """
    if spec.tpu is None:
        return {"PJRT_DEVICE": "CUDA" if spec.accelerator else "CPU"} if spec.on_xla else {}
    slices: Environment = {
        "MEGASCALE_COORDINATOR_ADDRESS": first_host(spec),
        "MEGASCALE_NUM_SLICES": str(shape.slices),
        "MEGASCALE_SLICE_ID": FieldReference(SLICE_INDEX),
    }
    return {"PJRT_DEVICE": "TPU", **(slices if shape.slices > 1 else {})}


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
