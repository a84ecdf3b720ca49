"""State of a small stack for the tests of the dashboard: two jobs, a restart, a slow rank, a lost node."""

from __future__ import annotations

import time
from typing import Any

from commands.dashboard.document import CURVE_KEYS, JobMetrics, Observation
from commands.dashboard.metrics import Curves
from commands.dashboard.watch import EVENT_NAMES
from commands.monitor.job_state import JobState
from commands.monitor.pod_state import Object, PodState
from commands.run_times import times_of
from infra.naming import POOL_LABEL

START_TIME = 1795687200.0
"""2026-11-26 10:00:00 UTC."""
NOW = START_TIME + 900


def stamp(seconds: float) -> str:
    """Return the time `seconds` after START_TIME, in the API's format."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(START_TIME + seconds))


def event(name: str, seconds: float, /, **values: Any) -> dict[str, Any]:
    """Return an event of the job `digits`, some seconds after START_TIME."""
    return {"event": name, "time": START_TIME + seconds, **values}


def train(step: int, seconds: float, *, rank: int = 0, waited: float = 20.0) -> dict[str, Any]:
    """Return a `train` event of the job `digits`. The rank waited for others `waited` percent of the time."""
    values = {"loss": 2.3 / (1 + step / 60), "accuracy": 100 - 90 / (1 + step / 40), "global_rate": 1630.0}
    values |= {"rate": 407.0, "all_reduce": waited, "data_wait": 1.5 + step % 7 / 5, "goodput": 80.0}
    return event("train", seconds, global_step=step, epoch=step // 125 + 1, step=step % 125, rank=rank, **values)


EVENTS = [
    event("start", 40),
    *(train(step, 50 + step) for step in range(1, 300, 2)),
    event("checkpoint", 256, step=200, seconds=3.0),
    event("start", 420),
    event("resume", 428, step=200),
    *(train(step, 235 + step) for step in range(201, 640, 2)),
    event("checkpoint", 640, step=400, seconds=3.0),
    event("test", 877, accuracy=96.5, loss=0.12, global_step=639),
    event("straggler", 880, slow_rank=3, slower=1.9),
]
EVENTS.sort(key=lambda each: float(each["time"]))


def node(index: int, pool: str = "gpus", *, ready: str = "True") -> Object:
    """Return a node of a pool, as the API returns it."""
    condition = {"type": "Ready", "status": ready, "lastTransitionTime": stamp(600)}
    labels = {POOL_LABEL: pool, "node.kubernetes.io/instance-type": "g2-standard-8"}
    return {"metadata": {"name": f"{pool}-{index}", "labels": labels}, "status": {"conditions": [condition]}}


def pod(index: int, *, job: str = "digits", **changes: Any) -> PodState:
    """Return a pod of a job, running unless changed."""
    values: dict[str, Any] = {
        "uid": f"{job}-{index}",
        "name": f"{job}-{index}-x7k2p",
        "job": job,
        "owner": f"uid-{job}",
        "index": index,
        "processes": 1,
        "node": f"gpus-{index}",
        "state": "running",
        "created": stamp(5),
    }
    return PodState(**{**values, **changes})


def observed(**changes: Any) -> Observation:
    """Return an observed stack: a running job of four hosts with one preemption, and a pending job."""
    preempted = pod(2, uid="first", name="digits-2-aaaaa", state="failed", reason="PreemptionByScheduler")
    preempted = PodState(**{**vars(preempted), "finished": stamp(351), "exit_code": 75})
    pods = [pod(0), pod(1), preempted, pod(2, created=stamp(380), node="gpus-4"), pod(3)]
    pods.append(
        pod(0, job="nightly", state="pending", node="", reason="Unschedulable", message="no node has a free GPU")
    )
    curves = Curves(CURVE_KEYS)
    curves.add(EVENTS)
    latest = {rank: train(639, 874, rank=rank, waited=20 + rank / 5) for rank in range(3)}
    latest[3] = train(639, 874, rank=3, waited=1.0) | {"rate": 260.0}
    metrics = JobMetrics(
        curves=curves,
        times=times_of(EVENTS, START_TIME),
        latest=latest,
        events=[each for each in EVENTS if each["event"] in EVENT_NAMES],
    )
    values: dict[str, Any] = {
        "stack": "dev",
        "namespace": "training",
        "time": NOW,
        "nodes": [*(node(index) for index in range(5)), node(0, "system"), node(1, "system", ready="Unknown")],
        "jobs": {
            "digits": JobState(
                name="digits", kind="jobset", state="running", hosts=4, uid="uid-digits", started=stamp(0)
            ),
            "nightly": JobState(name="nightly", kind="indexed-job", state="pending", hosts=2, uid="uid-nightly"),
        },
        "pods": pods,
        "metrics": {"digits": metrics},
        "records": {"digits": {"usd_per_hour": 3.41}, "nightly": {"usd_per_hour": 1.7}},
        "warnings": [
            {"time": stamp(352), "object": "Pod/digits-2-aaaaa", "reason": "Preempted", "message": "by pod urgent-0"}
        ],
        "usd_per_hour": 5.62,
    }
    return Observation(**{**values, **changes})


def job_of(found: dict[str, Any], name: str = "digits") -> dict[str, Any]:
    """Return a job of the dashboard's JSON document."""
    return next(job for job in found["jobs"] if job["name"] == name)
