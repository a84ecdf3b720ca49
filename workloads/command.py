"""Process layout, command and environment variables of each host of a job.

A host runs torchrun, which starts `-m trainer RECIPE --flag=value` or a script. Without torchrun (`uses_torchrun`), the
host starts the program itself. Ranks and addresses are environment variables, not flags. torchrun reads each of its
options from `PET_<OPTION>` (torch/distributed/argparse_util.py). If a kind's operator sets a variable in its pods, this
module does not set it. Kubernetes expands `$(NAME)` in commands.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from infra.builtin_images import builtin_image
from infra.hardware.machines import NcclEnvironmentScript
from workloads.kinds import KINDS
from workloads.kinds.kind import ETCD_SUFFIX
from workloads.spec import JobSpec
from workloads.user_files import data_flags, path_in_pod


@dataclass(frozen=True, kw_only=True)
class ProcessLayout:
    """Process layout of a job."""

    hosts: int
    """Total number of hosts."""
    min_hosts: int
    """Minimum number of hosts of an elastic job; for other jobs equal to `hosts`."""
    slices: int
    """Number of TPU slices, which divide the hosts into equal groups."""
    processes_per_host: int
    """Number of training processes on each host."""
    threads_per_process: int
    """Compute threads of each process: the host's CPUs divided among its processes."""

    @property
    def hosts_per_slice(self) -> int:
        """Number of hosts in each slice."""
        return self.hosts // self.slices

    @property
    def world_size(self) -> int:
        """Number of training processes."""
        return self.hosts * self.processes_per_host


def process_layout(spec: JobSpec) -> ProcessLayout:
    """Return the process layout of `spec`."""
    cpus = spec.resources.capacity.millicores // 1000
    return ProcessLayout(
        hosts=spec.hosts,
        min_hosts=spec.elastic.min_hosts if spec.elastic else spec.hosts,
        slices=spec.slices,
        processes_per_host=spec.processes_per_host,
        threads_per_process=max(1, cpus // spec.processes_per_host),
    )


BUCKET_PATH = "/bucket"
"""Mount path of a bucket that is a volume."""
SCRATCH_PATH = "/tmp"
SHARED_MEMORY_PATH = "/dev/shm"
POD_FOLDERS = (SCRATCH_PATH, SHARED_MEMORY_PATH)
"""Writable folders that each pod has for itself. The rest of its root file system is read-only in every image."""


def is_below(path: str, *folders: str) -> bool:
    """Return True if a path is one of the folders or below one."""
    return any(path == folder or path.startswith(f"{folder}/") for folder in folders)


LAUNCHER = ("python", "-m", "trainer.launch")
"""Command for torchrun in an image with the trainer. It exits with the code of the process that failed first."""
TORCHRUN = ("python", "-m", "torch.distributed.run")
"""Command for torchrun in any image with torch. It exits with 1 if any process fails."""
RENDEZVOUS_PORT = 29500
"""torchrun's default port."""
ETCD_PORT = 2379
COMPLETION_INDEX = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
"""Field of an Indexed Job's pod with its host's index. A label has the index only since Kubernetes 1.28."""
CONTROLLER_UID = "metadata.labels['batch.kubernetes.io/controller-uid']"
"""Field of a Job's pod with the Job's uid. A later Job of the same name has another uid."""
SLICE_INDEX = "metadata.annotations['jobset.sigs.k8s.io/job-index']"
"""Field of a JobSet's pod with the index of its child Job."""
SHUTDOWN_MARGIN_SECONDS = 5
"""Seconds before the end of the grace period at which a host kills its remaining training processes."""
JOIN_SECONDS = 1500
"""Seconds that hosts wait for each other. torchrun's default, 600, may be too short to pull a large image."""
LAST_CALL_SECONDS = 10
"""Seconds that an elastic job waits for more hosts once it has the minimum. All hosts are idle during this time;
torchrun's default is 30."""
POD_VARIABLES = ("PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "PYTHONUNBUFFERED=1", "HOME", "TRAINYARD_BUCKET")
"""Variables of the image and the pod that mpirun passes to the ranks. It only warns about unset variables."""
NEW_STORE_PER_ROUND = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
"""Variable that makes hosts exchange the address of their store in every round of the rendezvous. By default torch's
rank 0 sends the address only in its first round. A host that joins later then waits until all hosts time out (seen in
torch 2.15, dynamic_rendezvous.next_rendezvous)."""


@dataclass(frozen=True)
class FieldReference:
    """Reference to a field of the pod. Kubernetes inserts the field's value."""

    path: str
    """Path of the field in the downward API."""


NAMESPACE = FieldReference("metadata.namespace")
Environment = dict[str, "str | FieldReference"]


@dataclass(frozen=True, kw_only=True)
class Command:
    """Command of a host."""

    argv: tuple[str, ...]
    environment: Mapping[str, str | FieldReference]
    """Environment variables, in order: a value may refer to an earlier variable."""


def host_command(
    spec: JobSpec, layout: ProcessLayout, nccl_environment: NcclEnvironmentScript | None = None
) -> Command:
    """Return the command and environment of each host. An interactive job gets the program `idle`."""
    environment: Environment = {
        "TRAINYARD_JOB": spec.name,
        "TRAINYARD_NAMESPACE": NAMESPACE,
        "TRAINYARD_NODE": FieldReference("spec.nodeName"),
        "TRAINYARD_HOSTS": str(layout.hosts),
        "TRAINYARD_PROCESSES_PER_HOST": str(layout.processes_per_host),
        **(_rendezvous(spec, layout) if uses_torchrun(spec) else {}),
        **_device(spec, layout),
        "OMP_NUM_THREADS": str(layout.threads_per_process),
    }
    environment.update({name: _literal(value) for name, value in spec.environment.items()})
    return Command(
        argv=idle(spec) if spec.interactive else with_nccl_environment(nccl_environment, program(spec)),
        environment=environment,
    )


def with_nccl_environment(nccl_environment: NcclEnvironmentScript | None, argv: tuple[str, ...]) -> tuple[str, ...]:
    """Return a command that first sources the host's NCCL environment script, if there is one."""
    return (
        argv if nccl_environment is None else ("bash", "-c", f'. {nccl_environment.script} && exec "$@"', "bash", *argv)
    )


def idle(spec: JobSpec) -> tuple[str, ...]:
    """Return a program that waits for SIGTERM or SIGINT and exits with the code of a preempted host.

    After exit code 0, Kubernetes would not replace an evicted host. As process 1 of a container, the program gets only
    signals that it handles.
    """
    code = (
        "import signal, sys; end = {signal.SIGTERM, signal.SIGINT}; signal.pthread_sigmask(signal.SIG_BLOCK, end); "
        f"signal.sigwait(end); sys.exit({75 + KINDS[spec.kind].retryable_offset})"
    )
    return ("python", "-c", code)


def program(spec: JobSpec) -> tuple[str, ...]:
    """Return the training command of one host."""
    if spec.script is not None:
        words = (*_network_check(spec), _literal(path_in_pod(spec.script)), *map(_literal, spec.args))
    else:
        words = (*_network_check(spec), "-m", "trainer", str(spec.recipe), *_flags(spec), *data_flags(spec))
    return (*_launcher(spec), *words)


def _launcher(spec: JobSpec) -> tuple[str, ...]:
    """Return the words that start the program of one host."""
    if not uses_torchrun(spec):
        return ("python",)
    return LAUNCHER if spec.script is None or has_trainer(spec) else TORCHRUN


def has_trainer(spec: JobSpec) -> bool:
    """Return True if the job's image has the trainer. The contents of other projects' images are unknown."""
    name = spec.image_ref.builtin
    return bool(name) and "trainer" in builtin_image(name).sources


def _network_check(spec: JobSpec) -> tuple[str, ...]:
    """Return the words that start the network check, which then runs the rest of the command."""
    if spec.min_bandwidth_gbps is None:
        return ()
    return ("-m", "network_check", f"--min-bandwidth-gbps={spec.min_bandwidth_gbps:g}", "--")


def uses_torchrun(spec: JobSpec) -> bool:
    """Return True if torchrun starts the processes of a host.

    The job's settings or its kind may disable torchrun. On XLA, one process uses all devices of a TPU host, or of a
    job's only host, without torchrun.
    """
    if not (spec.torchrun and KINDS[spec.kind].starts_torchrun(spec)):
        return False
    return spec.processes_per_host > 1 or not (spec.tpu or (spec.on_xla and spec.hosts == 1))


def restarts_in_place(spec: JobSpec) -> bool:
    """Return True if the launchers of all hosts restart failed ranks in their pods (trainer/restarts).

    Elastic jobs restart through torchrun itself. A JobSet, including a TrainJob's, recreates all pods and counts
    a restart. The training-operator recreates only the failed pod and does not count a restart.
    """
    is_supported = KINDS[spec.kind].restarts_in_place and spec.rendezvous_backend == "static"
    return is_supported and spec.restarts > 0 and _launcher(spec) == LAUNCHER


def _rendezvous(spec: JobSpec, layout: ProcessLayout) -> Environment:
    """Return torchrun's variables, without those that the kind's operator sets."""
    kind = KINDS[spec.kind]
    is_static = spec.rendezvous_backend == "static"
    environment: Environment = {
        "PET_SHUTDOWN_TIMEOUT": str(max(1, spec.grace_seconds - SHUTDOWN_MARGIN_SECONDS)),
        **(NEW_STORE_PER_ROUND if spec.elastic else {}),
        **({"TRAINYARD_RETRYABLE_OFFSET": str(kind.retryable_offset)} if kind.retryable_offset else {}),
        "PET_RDZV_BACKEND": spec.rendezvous_backend,
        "PET_RDZV_CONF": ",".join(f"{name}={value}" for name, value in rendezvous_options(spec).items()),
        "PET_RDZV_ID": FieldReference(CONTROLLER_UID) if kind.is_one_job and not is_static else spec.name,
        "PET_NNODES": f"{layout.min_hosts}:{layout.hosts}" if spec.elastic else str(layout.hosts),
        "PET_NPROC_PER_NODE": str(layout.processes_per_host),
        "PET_RDZV_ENDPOINT": endpoint(spec),
    }
    if is_static:
        environment["PET_NODE_RANK"] = FieldReference(COMPLETION_INDEX)
    if spec.elastic or restarts_in_place(spec):
        environment["PET_MAX_RESTARTS"] = str(spec.restarts)
    set_by_operator = (*kind.operator_variables, *(kind.elastic_variables if spec.elastic else ()))
    return {name: value for name, value in environment.items() if name not in set_by_operator}


def rendezvous_options(spec: JobSpec) -> dict[str, str]:
    """Return the rendezvous options, under the names that the backend uses."""
    timeout = "join_timeout" if spec.rendezvous_backend == "c10d" else "timeout"
    last_call = {"last_call_timeout": str(LAST_CALL_SECONDS)} if spec.elastic else {}
    return {timeout: str(JOIN_SECONDS), **last_call}


def endpoint(spec: JobSpec) -> str:
    """Return the rendezvous endpoint: host 0 or the etcd of the job."""
    if spec.rendezvous_backend == "etcd":
        return f"{etcd_name(spec)}.$(TRAINYARD_NAMESPACE).svc:{ETCD_PORT}"
    return f"{first_host(spec)}.$(TRAINYARD_NAMESPACE).svc:{RENDEZVOUS_PORT}"


def first_host(spec: JobSpec) -> str:
    """Return the DNS name of host 0 in its namespace: `HOST.SERVICE`."""
    return f"{KINDS[spec.kind].first_host(spec.name)}.{spec.name}"


def etcd_name(spec: JobSpec) -> str:
    """Return the name of the job's etcd."""
    return f"{spec.name}{ETCD_SUFFIX}"


def _device(spec: JobSpec, layout: ProcessLayout) -> Environment:
    """Return PyTorch/XLA's environment variables, without those that GKE sets on the hosts of a TPU slice.

    The MEGASCALE variables connect several slices:
    https://cloud.google.com/kubernetes-engine/docs/how-to/tpu-multislice.
    """
    if spec.tpu is None:
        return {"PJRT_DEVICE": "CUDA" if spec.accelerator else "CPU"} if spec.on_xla else {}
    multislice: Environment = {
        "MEGASCALE_COORDINATOR_ADDRESS": first_host(spec),
        "MEGASCALE_NUM_SLICES": str(layout.slices),
        "MEGASCALE_SLICE_ID": FieldReference(SLICE_INDEX),
    }
    return {"PJRT_DEVICE": "TPU", **(multislice if layout.slices > 1 else {})}


def _flags(spec: JobSpec) -> list[str]:
    """Return the trainer's flags. A boolean becomes `--flag` or `--no-flag`."""
    flags = []
    for key, value in spec.flags.items():
        *groups, name = key.replace("_", "-").split(".")
        if isinstance(value, bool):
            flags.append("--" + ".".join([*groups, name if value else f"no-{name}"]))
        else:
            flags.append(f"--{'.'.join([*groups, name])}={_literal(str(value))}")
    return flags


def _literal(text: str) -> str:
    """Return `text` escaped so that Kubernetes expands nothing in it."""
    return text.replace("$", "$$")
