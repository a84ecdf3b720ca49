"""Jobs for the table of faults in docs/kinds.md: Trainyard's objects, with a small program that fails as instructed.

The fault affects host 1. `no-image` and `no-capacity` affect all hosts. In an `mpi-job`, the faults of
`LAUNCHER_CAUSES` affect the launcher. The other hosts wait until host 1 has started again and completed. The program
replaces the launcher's command: like ssh, it waits for each worker and holds a connection. It fails if a connection
breaks, or is silent for longer than ssh waits (workloads/kinds/mpi_job.py).
"""

from __future__ import annotations

from typing import Any, Literal, get_args

from infra.naming import COMPONENT_LABEL
from tests.components.rendered_jobs import pod_templates
from tests.golden.manifests import manifests
from workloads.objects import Placement
from workloads.spec import JobKind, JobSpec

JobCause = Literal["deleted", "evicted", "memory", "exit-1", "exit-78", "no-image", "no-capacity", "deadline"]
NodeCause = Literal["node-lost", "node-dead"]
Cause = JobCause | NodeCause
CAUSES: tuple[Cause, ...] = get_args(JobCause)
KINDS: tuple[JobKind, ...] = tuple(kind for kind in get_args(JobKind) if kind != "ray-job")
"""Kinds whose pods can run a small program. The operator of a `ray-job` needs Ray: tests/end_to_end/test_ray_job.py."""
LAUNCHER_CAUSES = ("memory", "exit-1", "exit-78")
"""Causes that affect the launcher of an `mpi-job`."""
DEADLINE_SECONDS = 90
"""Seconds until the end of the jobs with the cause `deadline`, whose programs wait forever."""
STARTS_FOLDER = "faults"
"""Folder in the bucket with a file for each start of a pod: `<job>/<pod>@<time>`."""

PROGRAM = """
import os, pathlib, signal, socket, sys, time
cause, job, role, victim = (os.environ[name] for name in ("CAUSE", "TRAINYARD_JOB", "ROLE", "VICTIM"))
host = os.environ["POD"]
folder = pathlib.Path("/bucket/faults") / job
folder.mkdir(parents=True, exist_ok=True)
has_started_before = any(each.name.startswith(victim) for each in folder.iterdir())

def fail():
    if cause == "exit-1":
        os._exit(1)
    if cause == "exit-78":
        os._exit(78)
    if cause == "memory":
        print(len(b"x" * 2**30))

def connect(name):
    while True:
        try:
            return socket.create_connection((name, 2222), timeout=60)
        except OSError:
            time.sleep(1)

def hold_workers():
    names = [line.split()[0] for line in open("/etc/mpi/hostfile") if line.strip()]
    held = [connect(name) for name in names]
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
            # A timeout has no error number and means only that no data has arrived.
            if error.errno:
                return True
    return False

def listen():
    server = socket.create_server(("", 2222))
    kept = []
    while True:
        kept.append(server.accept())

signal.signal(signal.SIGTERM, lambda *_: os._exit(int(os.environ["PREEMPTED"])))
held = hold_workers() if role == "launcher" else []
(folder / f"{host}@{time.time_ns()}").touch()
if role == "sshd":
    listen()
if role == "launcher":
    starts = sum(each.name.startswith(f"{job}-launcher") for each in folder.iterdir())
    fail()
    while starts == 1:
        if broken(held):
            os._exit(1)
    sys.exit(0)
# A lost node affects all pods on it. In this case, the test writes `done`.
if host.startswith(victim) and not cause.startswith("node-"):
    fail()
    if has_started_before:
        (folder / "done").touch()
        sys.exit(0)
    signal.pause()
while not (folder / "done").exists():
    time.sleep(0.2)
"""


def affected_pod_prefix(kind: JobKind, cause: Cause, name: str) -> str:
    """Return the prefix of the name of the pod that the fault affects."""
    if kind == "mpi-job":
        return f"{name}-launcher" if cause in LAUNCHER_CAUSES else f"{name}-worker-1"
    # The Master of a PyTorchJob is host 0.
    ends = {"pytorch-job": "worker-0", "mx-job": "worker-1", "jobset": "worker-0-1", "train-job": "node-0-1"}
    return f"{name}-{ends.get(kind, '1')}"


PREEMPTION_EXIT_CODES: dict[JobKind, str] = {"pytorch-job": "203", "mx-job": "143"}
"""Exit code of a preempted program, if it is not 75. `trainer.launch` adds 128 for the training-operator. Without
`trainer.launch`, SIGTERM ends the program with 128 + 15."""
PODS: dict[JobKind, int] = {"mpi-job": 3, "mx-job": 4}
"""Job kind -> number of pods, if it is not two."""


def job_name(kind: JobKind, cause: Cause) -> str:
    """Return the name of the job for a kind and a cause."""
    return f"{cause}-{kind}"


def objects(kind: JobKind, cause: Cause, placement: Placement) -> list[dict[str, Any]]:
    """Return the objects of the job for a kind and a cause, with two hosts and one restart."""
    name = job_name(kind, cause)
    values = {"name": name, "kind": kind, "script": "/replaced.py", "hosts": 2, "restarts": 1, "grace_seconds": 5}
    if cause == "deadline":
        values["deadline_seconds"] = DEADLINE_SECONDS
    # The launcher does not run here. With `torchrun`, an Indexed Job's failure policy would expect its exit codes.
    spec = JobSpec.model_validate({**values, "torchrun": kind != "indexed-job"})
    found = manifests(spec, placement)
    for each in found:
        each["metadata"].setdefault("name", f"{name}-runtime")
        if each["kind"] == "TrainJob":
            each["spec"]["runtimeRef"]["name"] = f"{name}-runtime"
    for template in pod_templates(found).values():
        _run_small_program(template, kind, cause, name)
    return found


def _run_small_program(template: dict[str, Any], kind: JobKind, cause: Cause, name: str) -> None:
    """Make a pod run the small program, with few resources."""
    (container,) = template["spec"]["containers"]
    role = template["metadata"]["labels"][COMPONENT_LABEL]
    container["command"], container["args"] = ["python", "-S", "-c", PROGRAM], []
    container["env"] += [
        {"name": "CAUSE", "value": cause},
        {"name": "PREEMPTED", "value": PREEMPTION_EXIT_CODES.get(kind, "75")},
        {"name": "ROLE", "value": "sshd" if (kind, role) == ("mpi-job", "worker") else role},
        {"name": "VICTIM", "value": affected_pod_prefix(kind, cause, name)},
        {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
    ]
    cpu = "900" if cause == "no-capacity" and role == "worker" else "5m"
    container["resources"] = {"requests": {"cpu": cpu, "memory": "16Mi"}, "limits": {"memory": "64Mi"}}
    if cause == "no-image" and role == "worker":
        container["image"] = "trainyard.local/missing:1"
