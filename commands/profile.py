"""Profiles and curves of jobs: a page about a rank's torch.profiler trace, and TensorBoard on the stack's bucket."""

from __future__ import annotations

import gzip
import json
import os
import re
import socket
import subprocess
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from commands.bucket import OUTPUTS, Bucket
from commands.environment import PROJECT
from commands.interrupts import STILL_RUNNING, CommandError, follow_parent, set_closing
from commands.monitor.cluster import StackOutputs, job_named, outputs_with
from commands.output_file import output_file
from commands.stack_settings import read_settings
from infra.make_command import DEFAULT_STACK, make_command, option_text
from infra.project import CHECKOUT
from stack.config import load_file
from workloads.command import process_layout

TEMPLATE = Path(__file__).with_name("profile_page.html")
TRACE_PLACEHOLDER = "/* trace */"
"""Text in TEMPLATE that the trace replaces."""
TRACE_NAME = re.compile(r"steps-(?P<first>\d+)-(?P<last>\d+)\.json\.gz")
"""Name of a trace in the folder of a rank (trainer/step_profile.py)."""
XLA_PREFIX = "proc_"
"""Prefix of the folders of XLA's profiler."""
COMPLETE_PHASE = "X"
"""Phase (`ph`) of an event with a start and a duration:
https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU"""
DEVICE_CATEGORIES = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
"""Categories of events on a GPU."""
IGNORED_CATEGORIES = frozenset({"Trace", "overhead"})
"""Categories that are not operations: the span of the whole trace, and the profiler's own overhead."""
NO_TRACE_ADVICE = (
    "to record one, add `profile_steps: 10-15` to the `flags` of a job with a recipe and run it again; "
    "docs/profile.md shows how a script records one"
)
MAX_EVENTS = 60_000
"""Maximum number of events in the time line. If a trace has more events, the time line omits the shortest."""


class ProfileError(CommandError):
    """Missing trace, or a bucket that this machine cannot reach."""


@dataclass
class Operation:
    """Sums over all events with one name. Times are in microseconds."""

    calls: int = 0
    total: float = 0.0
    own: float = 0.0
    """Time without the operations that it calls."""
    is_on_device: bool = False
    """True if it runs on a GPU."""


@dataclass(frozen=True, kw_only=True)
class Span:
    """Event on the time line."""

    name: str
    start: float
    """Microseconds since the start of the trace."""
    duration: float
    """Microseconds."""
    depth: int
    """Number of events in its row that enclose it."""
    row: str
    """Thread of the CPU, or GPU and its stream."""


def profile(job: str, rank: int, output: Path | None, *, as_json: bool) -> int:
    """Write a page about the newest trace of a rank and print its path. With `as_json`, only print the operations."""
    stack = os.environ.get("STACK", DEFAULT_STACK)
    found = outputs_with(stack, *OUTPUTS)
    name = job_named(StackOutputs.of(stack, found), job, "profile")
    config = read_settings(PROJECT / f"Pulumi.{stack}.yaml")
    bucket = Bucket.of(found, is_cluster_local=config.cloud.nodes_here > 0)
    record = found["run_records"][name]
    ranks = next((process_layout(each).world_size for each in config.jobs if each.name == name), None)
    title, events = read_trace(bucket, record["profiles"], name, rank, ranks)
    if as_json:
        print(json.dumps(summary(events), indent=2))
        return 0
    target = output or Path(f"profile-{name}-{rank}.html")
    text = page(title, events)
    with output_file(target) as written:
        written.write_text(text, encoding="utf-8")
    print(f"{target.resolve()}: {target.stat().st_size:,} bytes; open it in a browser")
    return 0


def read_trace(
    bucket: Bucket, folder: str, job: str, rank: int, ranks: int | None = None
) -> tuple[str, list[dict[str, Any]]]:
    """Return the title and the events of a rank's newest trace. Raises ProfileError if there is none.

    `ranks` is the job's number of ranks, if known.
    """
    folders = bucket.names(folder)
    traces = list(filter(None, map(TRACE_NAME.fullmatch, bucket.names(f"{folder}/rank-{rank}"))))
    if not traces and any(each.startswith(XLA_PREFIX) for each in folders):
        # Do not name a job: TensorBoard would then show only the job's folder, which does not contain the profiles.
        curves = make_command("tensorboard")
        raise ProfileError(f"job {job} has traces of XLA's profiler; {curves} shows them in its profile tab")
    if not traces and ranks is not None and rank >= ranks:
        raise ProfileError(
            f"{option_text('RANK', str(rank))}: job {job} has no such rank; its ranks are 0 to {ranks - 1}"
        )
    if not traces:
        found = [each for each in folders if any(map(TRACE_NAME.fullmatch, bucket.names(f"{folder}/{each}")))]
        ranks_text = ", ".join(each.removeprefix("rank-") for each in found)
        advice = f"ranks with a trace: {ranks_text}" if ranks_text else NO_TRACE_ADVICE
        raise ProfileError(f"rank {rank} of job {job} has no trace in {bucket.location(folder)}; {advice}")
    with tempfile.TemporaryDirectory() as scratch:
        bucket.copy(f"{folder}/rank-{rank}", Path(scratch))
        contents = [(Path(scratch, f"rank-{rank}", match[0]).read_bytes(), match) for match in traces]
    # A restarted run can record a newer trace of lower steps.
    content, match = max(contents, key=lambda each: (_compressed_at(each[0]), int(each[1]["last"])))
    title = f"Job {job}, rank {rank}, steps {match['first']} to {match['last']}"
    return title, json.loads(gzip.decompress(content))["traceEvents"]


def _compressed_at(content: bytes) -> int:
    """Return the time in the header of a gzip file, in seconds since 1970 (RFC 1952, MTIME)."""
    return int.from_bytes(content[4:8], "little")


def spans(events: Iterable[Mapping[str, Any]]) -> Iterator[tuple[Span, str, float]]:
    """Yield each event with its category and its own time, which excludes the events inside it.

    Of two events in one row that overlap, one must contain the other.
    """
    rows: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for event in events:
        if event.get("ph") == COMPLETE_PHASE and event.get("cat", "") not in IGNORED_CATEGORIES:
            rows[_row(event)].append(event)
    begin = min((float(each["ts"]) for row in rows.values() for each in row), default=0.0)
    for row, members in sorted(rows.items()):
        members.sort(key=lambda each: (float(each["ts"]), -float(each["dur"])))
        inner = [0.0] * len(members)
        depths, enclosing = list[int](), list[int]()
        for place, event in enumerate(members):
            while enclosing and _end(members[enclosing[-1]]) <= float(event["ts"]):
                enclosing.pop()
            if enclosing:
                inner[enclosing[-1]] += float(event["dur"])
            depths.append(len(enclosing))
            enclosing.append(place)
        for place, event in enumerate(members):
            start, duration = float(event["ts"]) - begin, float(event["dur"])
            span = Span(name=str(event["name"]), start=start, duration=duration, depth=depths[place], row=row)
            yield span, str(event.get("cat", "")), max(0.0, duration - inner[place])


def _end(event: Mapping[str, Any]) -> float:
    return float(event["ts"]) + float(event["dur"])


def _row(event: Mapping[str, Any]) -> str:
    if event.get("cat") in DEVICE_CATEGORIES:
        return f"GPU {event.get('pid')} stream {event.get('tid')}"
    return f"CPU thread {event.get('tid')}"


def operations(found: Iterable[tuple[Span, str, float]]) -> dict[str, Operation]:
    """Return the sums by name, sorted by own time, the longest first."""
    sums: dict[str, Operation] = defaultdict(Operation)
    for span, category, own in found:
        each = sums[span.name]
        each.calls += 1
        each.total += span.duration
        each.own += own
        each.is_on_device |= category in DEVICE_CATEGORIES
    return dict(sorted(sums.items(), key=lambda item: -item[1].own))


def summary(events: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the operations as plain values for JSON, with times in milliseconds."""
    return [
        {
            "name": name,
            "device": "gpu" if each.is_on_device else "cpu",
            "calls": each.calls,
            "self_ms": round(each.own / 1000, 3),
            "total_ms": round(each.total / 1000, 3),
        }
        for name, each in operations(spans(events)).items()
    ]


def page(title: str, events: Iterable[Mapping[str, Any]]) -> str:
    """Return the page. It loads nothing from a network."""
    found = list(spans(events))
    longest = sorted((each[0] for each in found), key=lambda span: -span.duration)[:MAX_EVENTS]
    names, rows = sorted({span.name for span in longest}), sorted({span.row for span in longest})
    numbers, places = ({text: number for number, text in enumerate(texts)} for texts in (names, rows))
    content = {
        "title": title,
        "operations": [
            [name, each.calls, round(each.own), round(each.total), each.is_on_device]
            for name, each in operations(found).items()
        ],
        "names": names,
        "rows": rows,
        "spans": [
            [places[span.row], span.depth, round(span.start, 1), round(span.duration, 1), numbers[span.name]]
            for span in sorted(longest, key=lambda span: span.start)
        ],
        "left_out": len(found) - len(longest),
    }
    # The name of an event could contain `</script>`, which would end the page's script.
    text = json.dumps(content, separators=(",", ":")).replace("</", "<\\/")
    return TEMPLATE.read_text(encoding="utf-8").replace(TRACE_PLACEHOLDER, text)


TENSORBOARD = CHECKOUT / ".venv-tensorboard" / "bin" / "tensorboard"
DEFAULT_PORT = "6006"
"""TensorBoard's default port; `PORT=` sets another."""


def check_port(port: int) -> None:
    """Raise CommandError if this machine cannot serve on a port."""
    try:
        socket.create_server(("localhost", port)).close()
    except OSError as error:
        # The error's own text repeats the address.
        reason, other = os.strerror(error.errno or 0), port + 1 if 1024 <= port < 65535 else 6007
        raise CommandError(
            f"{option_text('PORT', str(port))}: cannot be used ({reason}); name a free port, such as "
            f"`{option_text('PORT', str(other))}`"
        ) from error


def log_folder(bucket: str, folder: str) -> str:
    """Return the location of the events in a folder of the bucket, or in the whole bucket if `folder` is empty.

    The location is a path on this machine, or a URL that TensorBoard opens with fsspec.
    """
    root = bucket.removeprefix("file://").rstrip("/")
    return f"{root}/{folder}" if folder else root


def command_line(bucket: str, folder: str, port: str) -> list[str]:
    """Return TensorBoard's command. The server is reachable only from this machine."""
    # The fast loader reads only disks and GCS, and gives no error for other locations.
    return [
        str(TENSORBOARD),
        f"--logdir={log_folder(bucket, folder)}",
        "--host=localhost",
        f"--port={port}",
        "--load_fast=false",
    ]


def serve_tensorboard(set_up: Callable[[], int] = lambda: 0) -> int:
    """Serve TensorBoard until Ctrl-C. Return the exit status. `set_up` installs TensorBoard and returns a status."""
    set_closing(STILL_RUNNING)
    stack, job = os.environ.get("STACK", DEFAULT_STACK), os.environ.get("JOB", "")
    found = outputs_with(stack, "bucket_url", "kubeconfig_path", "namespace", "jobs", "run_records")
    folder = ""
    if job:
        name = job_named(StackOutputs.of(stack, found), job, "tensorboard")
        folder = str(found["run_records"][name]["bucket_prefix"])
    if problem := _bucket_problem(stack, found):
        raise ProfileError(problem)
    return set_up() or run_server(command_line(str(found["bucket_url"]), folder, os.environ.get("PORT", DEFAULT_PORT)))


def _bucket_problem(stack: str, found: Mapping[str, Any]) -> str:
    """Return the reason why this machine cannot reach the stack's bucket; empty if it can, or if that is unknown."""
    try:
        config = load_file(PROJECT / f"Pulumi.{stack}.yaml")
    except ValueError:
        return ""
    return Bucket.of(found, is_cluster_local=config.cloud.nodes_here > 0).problem


def run_server(command: Sequence[str]) -> int:
    """Run a server in its own session, so that it prints no traceback after Ctrl-C. Return its exit status."""
    process = subprocess.Popen(command, start_new_session=True, preexec_fn=follow_parent)
    try:
        return process.wait()
    finally:
        process.terminate()
        process.wait()
