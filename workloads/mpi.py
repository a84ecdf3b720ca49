"""What the launcher and the workers of an MPIJob execute: mpirun, and an sshd that needs no rights. Pure.

The operator gives both the same key at SSH_FOLDER, the launcher a host file, and the workers' names by DNS. sshd starts
programs with an environment of their own: mpirun hands each variable on by its name.
"""

from __future__ import annotations

from infra.hardware.nccl_environment_script import NcclEnvironmentScript
from workloads.command import IDLE, Command, FieldReference, program, sourced, uses_torchrun
from workloads.spec import JobSpec
from workloads.topology import Topology

SSH_FOLDER = "/etc/trainyard/ssh"
SSH_PORT = 2222
"""Above 1024, so that sshd needs no capability."""
SSHD = (
    *("/usr/sbin/sshd", "-D", "-e", "-f", "/dev/null", "-p", str(SSH_PORT), "-h", f"{SSH_FOLDER}/id_rsa"),
    # The key is a mounted Secret, whose folder sshd would find too open.
    *("-o", "StrictModes=no", "-o", f"AuthorizedKeysFile={SSH_FOLDER}/authorized_keys", "-o", "PidFile=none"),
    *("-o", "PasswordAuthentication=no", "-o", "KbdInteractiveAuthentication=no", "-o", "LogLevel=ERROR"),
)
SSH_OPTIONS = (
    f"-p {SSH_PORT} -i {SSH_FOLDER}/id_rsa -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null "
    "-o ConnectionAttempts=10 -o ServerAliveInterval=15 -o ServerAliveCountMax=4 -o LogLevel=ERROR"
)
"""The workers are new each time: there is no host key to know. One is lost after a minute without an answer."""
WAIT_FOR_WORKERS = (
    f'while read -r host _; do until ssh -n {SSH_OPTIONS} "$host" true; do sleep 1; done; done </etc/mpi/hostfile; '
    'exec "$@"'
)
"""A suspended job has its launcher while it has no worker to wait for, and all of them are resumed at once."""
OF_THE_POD = ("PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "PYTHONUNBUFFERED=1", "HOME", "TRAINYARD_BUCKET")
"""Variables that come from the image and the pod; mpirun only warns of those that an image does not set."""


def slots_per_worker(spec: JobSpec, shape: Topology) -> int:
    """Processes that mpirun starts on each worker: torchrun alone, or every training process."""
    return 1 if uses_torchrun(spec) else shape.processes_per_host


def launcher_command(
    spec: JobSpec, shape: Topology, host: Command, profile: NcclEnvironmentScript | None = None
) -> Command:
    """mpirun on all workers, or what waits for it to be started by hand; the environment is the hosts' own."""
    slots = slots_per_worker(spec, shape)
    passed = [*OF_THE_POD, *(name for name in host.environment if not _is_of_one_pod(host, name)), *spec.secrets]
    argv = (
        *("mpirun", "-np", str(shape.hosts * slots), "--map-by", f"ppr:{slots}:node", "--bind-to", "none"),
        *("-mca", "pml", "ob1", "-mca", "btl", "^openib", "-mca", "plm_rsh_args", SSH_OPTIONS),
        *(word for name in passed for word in ("-x", name)),
        *sourced(profile, program(spec)),
    )
    if spec.queue:
        argv = ("sh", "-c", WAIT_FOR_WORKERS, "sh", *argv)
    return Command(argv=IDLE if spec.interactive else argv, environment=host.environment)


def worker_command(host: Command) -> Command:
    """sshd, in the environment of the hosts of every other kind."""
    return Command(argv=SSHD, environment=host.environment)


def _is_of_one_pod(command: Command, name: str) -> bool:
    """Whether a variable says something of the launcher's own pod, which is not so of the workers."""
    value = command.environment[name]
    return isinstance(value, FieldReference) and value.path != "metadata.namespace"
