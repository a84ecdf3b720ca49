"""Jobs for the fault table: each kind as Trainyard renders it, with small programs that fail as instructed.

The fault hits host 1, or the launcher of an `mpi-job` if the launcher's exit is what counts. The others wait until host
1 has done its work. A small program instead of mpirun holds a connection to each worker, as ssh does. It fails when one
breaks or is silent for longer than ssh waits (workloads/kinds/mpi_job.py).
"""

from __future__ import annotations

from typing import Any, Literal, get_args

from infra.naming import COMPONENT_LABEL
from tests.components.rendered_jobs import pod_templates
from tests.golden.manifests import manifests
from workloads.objects import Placement
from workloads.spec import JobKind, JobSpec

JobCause = Literal["deleted", "evicted", "memory", "exit-1", "exit-78", "no-image", "no-capacity"]
NodeCause = Literal["node-lost", "node-dead"]
Cause = JobCause | NodeCause
CAUSES: tuple[Cause, ...] = get_args(JobCause)
KINDS: tuple[JobKind, ...] = tuple(kind for kind in get_args(JobKind) if kind != "ray-job")
"""Kinds whose pods can run a small program. The operator of a `ray-job` needs Ray: tests/end_to_end/test_ray_job.py."""
LAUNCHER_CAUSES = ("memory", "exit-1", "exit-78")
"""Causes that affect mpirun in an `mpi-job`."""
STARTS = "faults"
"""Folder in the bucket with a file for each start of a pod: `<job>/<pod>@<time>`."""

PROGRAM = """
import os, pathlib, signal, socket, sys, time
cause, job, role, victim = (os.environ[name] for name in ("CAUSE", "TRAINYARD_JOB", "ROLE", "VICTIM"))
host = os.environ["POD"]
folder = pathlib.Path("/bucket/faults") / job
folder.mkdir(parents=True, exist_ok=True)
again = any(each.name.startswith(victim) for each in folder.iterdir())
def happens():
    if cause == "exit-1":
        os._exit(1)
    if cause == "exit-78":
        os._exit(78)
    if cause == "memory":
        print(len(b"x" * 2**30))

def hold_workers():
    names = [line.split()[0] for line in open("/etc/mpi/hostfile") if line.strip()]
    held = [socket.create_connection((name, 2222), timeout=60) for name in names]
    for each in held:
        each.settimeout(0.1)
        each.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in ((socket.TCP_KEEPIDLE, 15), (socket.TCP_KEEPINTVL, 15), (socket.TCP_KEEPCNT, 4)):
            each.setsockopt(socket.IPPROTO_TCP, option, value)
    return held

def broken(held):
    for each in held:
        try:
            if not each.recv(1):
                return True
        except OSError as error:
            # A timeout has no number: no data has arrived so far.
            if error.errno:
                return True
    return False

def listen():
    server = socket.create_server(("", 2222))
    kept = []
    while True:
        kept.append(server.accept())

signal.signal(signal.SIGTERM, lambda *_: os._exit(int(os.environ["LEFT"])))
held = hold_workers() if role == "launcher" else []
(folder / f"{host}@{time.time_ns()}").touch()
if role == "sshd":
    listen()
if role == "launcher":
    tries = sum(each.name.startswith(f"{job}-launcher") for each in folder.iterdir())
    happens()
    while tries == 1:
        if broken(held):
            os._exit(1)
    sys.exit(0)
# The test ends the jobs of a lost node, which affects all pods on it.
if host.startswith(victim) and not cause.startswith("node-"):
    happens()
    if again:
        (folder / "done").touch()
        sys.exit(0)
    signal.pause()
while not (folder / "done").exists():
    time.sleep(0.2)
"""


def victim(kind: JobKind, cause: Cause, name: str) -> str:
    """Return the prefix of the affected pod's name."""
    if kind == "mpi-job":
        return f"{name}-launcher" if cause in LAUNCHER_CAUSES else f"{name}-worker-1"
    # The Master of a PyTorchJob is host 0.
    ends = {"pytorch-job": "worker-0", "mx-job": "worker-1", "jobset": "worker-0-1", "train-job": "node-0-1"}
    return f"{name}-{ends.get(kind, '1')}"


PREEMPTION_EXIT_CODES: dict[JobKind, str] = {"pytorch-job": "203", "mx-job": "143"}
"""Exit codes of a preempted program: the launcher's for that operator, and that of the signal."""
PODS: dict[JobKind, int] = {"mpi-job": 3, "mx-job": 4}
"""Number of pods of a job of a kind, if it is not two."""


def job_name(kind: JobKind, cause: Cause) -> str:
    """Return the name of the job of one kind with one cause."""
    return f"{cause}-{kind}"


def objects(kind: JobKind, cause: Cause, placement: Placement) -> list[dict[str, Any]]:
    """Return the objects of that job, with two hosts and one restart, or more if mpirun may be back before its
    worker."""
    name = job_name(kind, cause)
    restarts = 4 if kind == "mpi-job" and cause not in LAUNCHER_CAUSES else 1
    own = {"name": name, "kind": kind, "script": "/replaced.py", "hosts": 2, "restarts": restarts, "grace_seconds": 5}
    # The program is not a launcher, which would restart ranks in place and end the job by its exit codes.
    spec = JobSpec.model_validate({**own, "torchrun": kind != "indexed-job"})
    found = manifests(spec, placement)
    for made in found:
        made["metadata"].setdefault("name", f"{name}-runtime")
        if made["kind"] == "TrainJob":
            made["spec"]["runtimeRef"]["name"] = f"{name}-runtime"
    for template in pod_templates(found).values():
        _replace(template, kind, cause, name)
    return found


def _replace(template: dict[str, Any], kind: JobKind, cause: Cause, name: str) -> None:
    """Make a pod run the small program, with few resources."""
    (container,) = template["spec"]["containers"]
    role = template["metadata"]["labels"][COMPONENT_LABEL]
    container["command"], container["args"] = ["python", "-S", "-c", PROGRAM], []
    container["env"] += [
        {"name": "CAUSE", "value": cause},
        {"name": "LEFT", "value": PREEMPTION_EXIT_CODES.get(kind, "75")},
        {"name": "ROLE", "value": "sshd" if (kind, role) == ("mpi-job", "worker") else role},
        {"name": "VICTIM", "value": victim(kind, cause, name)},
        {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
    ]
    cpu = "900" if cause == "no-capacity" and role == "worker" else "5m"
    container["resources"] = {"requests": {"cpu": cpu, "memory": "16Mi"}, "limits": {"memory": "64Mi"}}
    if cause == "no-image" and role == "worker":
        container["image"] = "trainyard.local/missing:1"
