"""Benchmarks of the dashboard: a refresh with 1,024 hosts, and the metrics of a million steps.

`python -m bench.dashboard` prints times, sizes and memory. With `--serve`, it serves the page of the 1,024 hosts
instead, until Ctrl-C.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import resource
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from commands.dashboard.document import CURVE_KEYS, JobMetrics, Observation, document
from commands.dashboard.metrics import RANK_KEYS, Curves
from commands.dashboard.server import Hub, Server, serve, stop
from commands.dashboard.watch import JobFeed
from commands.monitor.job_state import JobState
from commands.monitor.pod_state import INDEX, Object, pod_state
from commands.run_times import times_of
from infra.naming import JOB_LABEL, POOL_LABEL

HOSTS, PROCESSES, STEPS = 1024, 8, 1_000_000
"""Hosts of the job, processes per host, and steps of a metrics file."""
START_TIME = 1_795_687_200.0
"""Start of the job's pods, in seconds since 1970. The job itself started 60 s earlier."""
REFRESHES = 20


def _stamp(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def node(index: int) -> Object:
    """Return a node as the API returns it. Every 128 nodes form a pool, and node 77 does not answer."""
    conditions = [{"type": each, "status": "False"} for each in ("MemoryPressure", "DiskPressure", "PIDPressure")]
    conditions.append({"type": "Ready", "status": "True" if index != 77 else "Unknown", "reason": "KubeletReady"})
    labels = {POOL_LABEL: f"gpus-{index // 128}", "node.kubernetes.io/instance-type": "a3-highgpu-8g"}
    return {"metadata": {"name": f"node-{index}", "labels": labels}, "status": {"conditions": conditions}, "spec": {}}


def pod(job: str, index: int, uid: str, *, processes: int) -> Object:
    """Return a pod as the API returns it, with about as many fields as a real one."""
    current: Object = {"running": {"startedAt": _stamp(START_TIME)}}
    environment = [{"name": "TRAINYARD_PROCESSES_PER_HOST", "value": str(processes)}]
    environment += [{"name": f"SETTING_{each}", "value": "x" * 40} for each in range(40)]
    return {
        "metadata": {
            "uid": f"{uid}-{index}",
            "name": f"{job}-{index}-abcde",
            "creationTimestamp": _stamp(START_TIME),
            "labels": {JOB_LABEL: job},
            "annotations": {INDEX: str(index)},
            "ownerReferences": [{"uid": uid}],
        },
        "spec": {"nodeName": f"node-{index}", "containers": [{"name": "trainer", "env": environment}]},
        "status": {"phase": "Running", "containerStatuses": [{"state": current}]},
    }


def train_event(step: int, rank: int, world: int, moment: float) -> dict[str, Any]:
    """Return the trainer's event `train` of a step. Rank 300 is slow: it waits half as long for other ranks."""
    wait_factor = 0.5 if rank == 300 else 1.0
    return {
        "event": "train",
        "time": round(moment, 3),
        "epoch": step // 5000 + 1,
        "step": step % 5000 + 1,
        "steps": 5000,
        "loss": round(8 / (1 + step / 500) + 2 + random.random() / 4, 6),
        "accuracy": round(100 * (1 - math.exp(-step / 4000)), 6),
        "rate": 700.0 + random.random(),
        "global_rate": 700.0 * world,
        "data_wait": round(random.random(), 6),
        "all_reduce": round(20 * wait_factor + random.random(), 6),
        "memory_mib": 60000.0,
        "goodput": 93.2,
        "teraflops": 412.1,
        "mfu": 41.7,
        "rank": rank,
        "ranks": world,
        "host": f"large-{rank}",
        "global_step": step,
    }


def large_state(events: list[dict[str, Any]]) -> tuple[bytes, bytes, Mapping[str, JobMetrics]]:
    """Return the API's answers about the pods and nodes of a job on HOSTS hosts, and the job's metrics."""
    curves = Curves(CURVE_KEYS)
    curves.add(events)
    world = HOSTS * PROCESSES
    found = {rank: train_event(len(events), rank, world, START_TIME + 3600) for rank in range(world)}
    latest = {rank: {key: event[key] for key in RANK_KEYS if key in event} for rank, event in found.items()}
    metrics = JobMetrics(curves=curves, times=times_of(events, START_TIME - 60), latest=latest, events=[])
    pods = {"items": [pod("large", index, "job", processes=PROCESSES) for index in range(HOSTS)]}
    nodes = {"items": [node(index) for index in range(HOSTS)]}
    return json.dumps(pods).encode(), json.dumps(nodes).encode(), {"large": metrics}


def observed(pods: bytes, nodes: bytes, metrics: Mapping[str, JobMetrics]) -> Observation:
    """Return the state of the stack from the API's answers, as each refresh does."""
    job = JobState(
        name="large", kind="jobset", state="running", hosts=HOSTS, uid="job", started=_stamp(START_TIME - 60)
    )
    return Observation(
        stack="large",
        namespace="training",
        time=time.time(),
        nodes=json.loads(nodes)["items"],
        jobs={"large": job},
        pods=[pod_state(each) for each in json.loads(pods)["items"]],
        metrics=metrics,
        records={"large": {"usd_per_hour": 90_000.0}},
    )


def events(count: int, world: int) -> list[dict[str, Any]]:
    """Return the events of rank 0 of a long run that was restarted once."""
    found: list[dict[str, Any]] = [{"event": "start", "time": START_TIME}]
    found += [train_event(step, 0, world, START_TIME + 30 + step) for step in range(20, count // 2, 20)]
    found += [{"event": "start", "time": START_TIME + count // 2 + 90}]
    found += [{"event": "resume", "time": START_TIME + count // 2 + 100, "step": count // 2 - 500}]
    first = count // 2 - 500
    return found + [train_event(step, 0, world, START_TIME + 130 + step) for step in range(first, count, 20)]


def measure_refresh() -> None:
    """Print the CPU time and the size of a refresh with HOSTS hosts, and the memory of this process."""
    pods, nodes, metrics = large_state(events(100_000, HOSTS * PROCESSES))
    times = []
    for _ in range(REFRESHES):
        started = time.process_time()
        text = json.dumps(document(observed(pods, nodes, metrics)), separators=(",", ":"))
        times.append(time.process_time() - started)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"refresh with {HOSTS:,} hosts and {HOSTS * PROCESSES:,} ranks: {1000 * sorted(times)[len(times) // 2]:.0f} ms"
    )
    print(f"document: {len(text) / 1000:,.0f} kB; the API's answers: {(len(pods) + len(nodes)) / 1e6:.1f} MB")
    print(f"peak memory of the process: {peak:.0f} MiB")


def measure_curves(folder: Path, every: int) -> None:
    """Print the CPU time to read a metrics file of STEPS steps, with one line per `every` steps.

    Each refresh of the dashboard reads the next part of the file.
    """
    file = folder / "rank-0.jsonl"
    with file.open("w", encoding="utf-8") as opened:
        for step in range(every, STEPS + 1, every):
            opened.write(json.dumps(train_event(step, 0, 8, START_TIME + step)) + "\n")
    feed, refreshes, longest, total = JobFeed(folder), 0, 0.0, 0.0
    while refreshes == 0 or feed.metrics().share_read < 1:
        started = time.process_time()
        feed.read_files(1)
        seconds = time.process_time() - started
        refreshes, longest, total = refreshes + 1, max(longest, seconds), total + seconds
    started = time.process_time()
    points = feed.metrics().curves.points("train", "loss")
    drawn = time.process_time() - started
    print(
        f"{STEPS:,} steps, a line every {every}: {file.stat().st_size / 1e6:.0f} MB in {total:.2f} s, in {refreshes} "
        f"refreshes of at most {longest:.2f} s; then {len(points)} points in {1000 * drawn:.1f} ms"
    )


def serve_large() -> None:
    """Serve the page of a job on HOSTS hosts until Ctrl-C."""
    hub = Hub()
    server = Server(0, hub, lambda _stack, _pod: "a line of a log\n")
    pods, nodes, metrics = large_state(events(100_000, HOSTS * PROCESSES))
    hub.add("large", "large")
    serve(server)
    print(server.url, flush=True)
    try:
        while True:
            hub.put("large", document(observed(pods, nodes, metrics)))
            threading.Event().wait(2)
    except KeyboardInterrupt:
        pass  # Ctrl-C ends the server.
    finally:
        stop(server, "the benchmark has ended")


def main() -> int:
    """Print the results, or serve the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--serve", action="store_true", help="serve the page of a job on 1,024 hosts")
    if parser.parse_args().serve:
        serve_large()
        return 0
    measure_refresh()
    with tempfile.TemporaryDirectory(prefix="trainyard-bench-") as folder:
        measure_curves(Path(folder), 20)
        measure_curves(Path(folder), 1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
