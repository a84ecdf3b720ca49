"""Kind `mpi-job`: an MPIJob (kubeflow.org/v2beta1): workers that run sshd, and a launcher that runs mpirun on them.

The operator creates the launcher when every worker is ready, because Kubernetes publishes a worker's DNS name only
then. The launcher is a Job, and an MPIJob cannot set the failure policy of that Job. Each failure of the launcher
therefore counts as a restart, even an eviction or an exit code that other kinds do not retry. The operator recreates a
worker that is deleted, or evicted through the API. A worker that its node evicts for lack of resources ends the job.
sshd does not end by itself, so the operator deletes the workers when the job ends.

The operator mounts the same key in all pods at SSH_FOLDER. It gives the launcher a host file with the workers' DNS
names. Programs that sshd starts do not inherit its environment, so mpirun passes each variable by name.
Source: github.com/kubeflow/mpi-operator v0.8.2, pkg/controller.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from infra.hardware import PodGroup
from workloads.kinds.kind import COORDINATOR, Kind, Resource, Schema, condition_is_true, numbered, replicas
from workloads.kinds.training_operator import INDEX_LABEL, RunPolicy, run_policy

if TYPE_CHECKING:
    from pulumi import Output, ResourceOptions
    from pulumi_kubernetes.core.v1 import PodTemplateSpecArgs

    from infra.hardware.machines import NcclEnvironmentScript
    from workloads.command import Command, ProcessLayout
    from workloads.objects import Placement
    from workloads.spec import JobSpec

OPEN_MPI = "OpenMPI, sshd and ssh"
LAUNCHERS = 1
RESOURCE = Resource(
    api_version="kubeflow.org/v2beta1",
    kind="MPIJob",
    plural="mpijobs",
    is_running=condition_is_true("Running"),
    suspend=("runPolicy", "suspend"),
    hosts=replicas("mpiReplicaSpecs", "Worker"),
)
SSH_FOLDER = "/etc/trainyard/ssh"
SSH_PORT = 2222
"""Port of sshd. A port above 1023 needs no capability."""
SSHD = (
    *("/usr/sbin/sshd", "-D", "-e", "-f", "/dev/null", "-p", str(SSH_PORT), "-h", f"{SSH_FOLDER}/id_rsa"),
    # In strict mode, sshd rejects the key's folder, a mounted Secret, as too open.
    *("-o", "StrictModes=no", "-o", f"AuthorizedKeysFile={SSH_FOLDER}/authorized_keys", "-o", "PidFile=none"),
    *("-o", "PasswordAuthentication=no", "-o", "KbdInteractiveAuthentication=no", "-o", "LogLevel=ERROR"),
)
SSH_OPTIONS = (
    f"-p {SSH_PORT} -i {SSH_FOLDER}/id_rsa -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null "
    "-o ConnectionAttempts=10 -o ServerAliveInterval=15 -o ServerAliveCountMax=4 -o LogLevel=ERROR"
)
"""Options of ssh. Each run has new workers, so do not check host keys. Give up on a worker that has not answered for a
minute."""
WAIT_FOR_WORKERS = (
    "end=$(($(date +%s) + $1)); shift; while read -r host _; do "
    f'until ssh -n {SSH_OPTIONS} "$host" true; do [ "$(date +%s)" -lt "$end" ] || exit 1; sleep 1; done; '
    'done </etc/mpi/hostfile; exec "$@"'
)
"""Shell command that waits for the workers and then runs its arguments. The first argument is the maximum wait in
seconds. The operator starts a resumed job's launcher together with its workers, and Kubernetes restarts a failed
launcher before a lost worker is back."""
MPIRUN_VARIABLES = (
    *("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    *("OMPI_COMM_WORLD_NODE_RANK", "OMPI_UNIVERSE_SIZE"),
)
"""Variables that mpirun sets: https://docs.open-mpi.org/en/v4.1.x/faq/running-mpi-apps.html"""
MPIRUN_OPTIONS = ("OMPI_MCA_pml", "OMPI_MCA_btl")
"""Variables that the command's options `pml` and `btl` override."""


@dataclass(frozen=True, kw_only=True)
class MPIReplica(Schema):
    """Identical pods of the job."""

    replicas: int
    restart_policy: str
    template: PodTemplateSpecArgs


@dataclass(frozen=True, kw_only=True)
class MPIJobSpec(Schema):
    """Spec of the MPIJob."""

    launcher_creation_policy: str
    mpi_implementation: str
    mpi_replica_specs: dict[str, MPIReplica]
    run_policy: RunPolicy
    slots_per_worker: int
    ssh_auth_mount_path: str


class MPIJob(Kind):
    """Kind `mpi-job`."""

    name = "mpi-job"
    operators = frozenset({"mpi-operator"})
    resource = RESOURCE
    index_label = INDEX_LABEL
    rendezvous = ("c10d",)
    no_tpu = "there is no MPI between TPU hosts"
    image_software = OPEN_MPI
    operator_variables = (
        *("OMPI_MCA_orte_default_hostfile", "OMPI_MCA_orte_keep_fqdn_hostnames", "OMPI_MCA_plm_rsh_args"),
        "K_MPI_JOB_ROLE",
    )
    reserved_variables = MappingProxyType(
        {**dict.fromkeys(MPIRUN_VARIABLES, "mpirun"), **dict.fromkeys(MPIRUN_OPTIONS, "Trainyard")}
    )

    def starts_torchrun(self, spec: JobSpec) -> bool:
        return spec.script is None

    def extra_pods(self, spec: JobSpec) -> tuple[PodGroup, ...]:
        del spec
        return (PodGroup(count=LAUNCHERS, per_pod=COORDINATOR, key="kind", role="launcher"),)

    def first_host(self, job: str) -> str:
        return f"{job}-worker-0"

    def child_suffixes(self, spec: JobSpec) -> Iterator[str]:
        yield from ("-launcher", "-config", "-ssh")
        yield from numbered("worker", spec.hosts)

    def render(self, name: str, spec: JobSpec, placement: Placement, opts: ResourceOptions) -> Output[str]:
        """Create the MPIJob."""
        from workloads.command import JOIN_SECONDS, host_command, process_layout
        from workloads.objects import WAIT_FOR_CREATION, Pod, custom_job, metadata, pod_template

        layout = process_layout(spec)
        host = host_command(spec, layout)
        launcher = Pod(
            command=launcher_command(spec, layout, host, placement.scheduling.nccl_environment),
            role="launcher",
            capacity=COORDINATOR,
            restart_policy=None,
        )
        # The operator counts the deadline from the launcher's start. A job without capacity for all workers starts no
        # launcher, so workers have a deadline too: JOIN_SECONDS longer, so that the launcher's usually passes first.
        deadline = spec.deadline_seconds and spec.deadline_seconds + JOIN_SECONDS
        worker = Pod(command=replace(host, argv=SSHD), restart_policy=None, port=SSH_PORT, deadline_seconds=deadline)
        return custom_job(
            f"{name}-job",
            RESOURCE,
            metadata(spec, placement, WAIT_FOR_CREATION),
            MPIJobSpec(
                launcher_creation_policy="WaitForWorkersReady",
                mpi_implementation="OpenMPI",
                mpi_replica_specs={
                    "Launcher": MPIReplica(
                        replicas=LAUNCHERS, restart_policy="Never", template=pod_template(spec, placement, launcher)
                    ),
                    # The operator does not replace a failed worker, so let the kubelet restart sshd. The kernel kills
                    # sshd together with a rank that exceeds the memory.
                    "Worker": MPIReplica(
                        replicas=spec.hosts, restart_policy="OnFailure", template=pod_template(spec, placement, worker)
                    ),
                },
                run_policy=run_policy(spec, spec.hosts + LAUNCHERS),
                slots_per_worker=slots_per_worker(spec, layout),
                ssh_auth_mount_path=SSH_FOLDER,
            ),
            opts,
        )


def slots_per_worker(spec: JobSpec, layout: ProcessLayout) -> int:
    """Return the number of processes that mpirun starts on each worker: one torchrun, or every training process."""
    from workloads.command import uses_torchrun

    return 1 if uses_torchrun(spec) else layout.processes_per_host


def launcher_command(
    spec: JobSpec, layout: ProcessLayout, host: Command, nccl_environment: NcclEnvironmentScript | None = None
) -> Command:
    """Return the launcher's command: mpirun on all workers, or `idle` if the job is interactive."""
    from workloads.command import JOIN_SECONDS, NAMESPACE, POD_VARIABLES, idle, program, with_nccl_environment
    from workloads.user_files import DATA_VARIABLE

    slots = slots_per_worker(spec, layout)
    # Pass only plain values and the namespace. Other references would resolve to values of the launcher's pod.
    known = (name for name, value in host.environment.items() if value == NAMESPACE or isinstance(value, str))
    passed = [*POD_VARIABLES, *([DATA_VARIABLE] if spec.data else []), *known, *spec.secrets]
    argv = (
        *("mpirun", "-np", str(layout.hosts * slots), "--map-by", f"ppr:{slots}:node", "--bind-to", "none"),
        *("-mca", "pml", "ob1", "-mca", "btl", "^openib", "-mca", "plm_rsh_args", SSH_OPTIONS),
        *(word for name in passed for word in ("-x", name)),
        *with_nccl_environment(nccl_environment, program(spec)),
    )
    wait = ("sh", "-c", WAIT_FOR_WORKERS, "sh", str(JOIN_SECONDS))
    return replace(host, argv=idle(spec) if spec.interactive else (*wait, *argv))
