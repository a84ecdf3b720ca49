"""`trainyard profile`: times and nesting of a trace's operations, choice of the trace, and the page of a profile."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from commands.bucket import Bucket
from commands.profile import ProfileError, operations, page, read_trace, spans, summary
from tests.commands.browser import draw, needs_chromium


def event(name: str, start: float, duration: float, **more: Any) -> dict[str, Any]:
    """Return a complete event of a trace, in microseconds."""
    return {"ph": "X", "cat": "cpu_op", "name": name, "ts": start, "dur": duration, "pid": 7, "tid": 7, **more}


NESTED = [
    event("inner", 1010, 20),
    event("outer", 1000, 100),
    event("inner", 1040, 30),
    event("innermost", 1045, 10),
    event("next", 1100, 5),
    event("matmul", 1020, 400, cat="kernel", pid=0, tid=12),
    event("the whole trace", 0, 5000, cat="Trace"),
    {"ph": "f", "name": "flow", "ts": 1000, "pid": 7, "tid": 7},
]


def test_spans_nest_and_own_time_excludes_inner_operations() -> None:
    found = {(span.name, span.start): (span.depth, own) for span, _, own in spans(NESTED)}
    assert found == {
        ("outer", 0): (0, 50),
        ("inner", 10): (1, 20),
        ("inner", 40): (1, 20),
        ("innermost", 45): (2, 10),
        ("next", 100): (0, 5),
        ("matmul", 20): (0, 400),
    }


def test_operations_are_summed_by_name_with_most_own_time_first() -> None:
    found = operations(spans(NESTED))
    assert list(found)[:2] == ["matmul", "outer"]
    assert (found["inner"].calls, found["inner"].own, found["inner"].total) == (2, 40, 50)
    assert [name for name, each in found.items() if each.is_on_device] == ["matmul"]


def test_summary_has_milliseconds() -> None:
    assert summary(NESTED)[0] == {"name": "matmul", "device": "gpu", "calls": 1, "self_ms": 0.4, "total_ms": 0.4}


def bucket(folder: Path, *traces: str) -> Bucket:
    """Return a bucket with these traces of rank 0, oldest first. Each trace has one operation, named like its file."""
    for written, name in enumerate(traces):
        file = folder / "profiles" / "digits" / "rank-0" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(gzip.compress(json.dumps({"traceEvents": [event(name, 0, 1)]}).encode(), mtime=written))
    return Bucket(url=f"file://{folder}", is_cluster_local=True)


def test_newest_trace_of_a_rank_is_the_last_written_trace(tmp_path: Path) -> None:
    source = bucket(tmp_path, "steps-5-9.json.gz", "steps-100-110.json.gz", "steps-20-30.json.gz")
    title, events = read_trace(source, "profiles/digits", "digits", 0)
    assert title == "Job digits, rank 0, steps 20 to 30"
    assert events[0]["name"] == "steps-20-30.json.gz"


def test_missing_trace_is_an_error_with_the_setting_or_the_ranks(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match="add `profile_steps: 10-15`"):
        read_trace(bucket(tmp_path), "profiles/digits", "digits", 0)
    source = bucket(tmp_path, "steps-5-9.json.gz")
    with pytest.raises(ProfileError, match=r"rank 3 of job digits has no trace .* ranks with a trace: 0$"):
        read_trace(source, "profiles/digits", "digits", 3)


def test_rank_that_the_job_does_not_have_is_an_error_with_its_ranks(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match=r"RANK=9: job digits has no such rank; its ranks are 0 to 1$"):
        read_trace(bucket(tmp_path), "profiles/digits", "digits", 9, ranks=2)
    with pytest.raises(ProfileError, match="add `profile_steps: 10-15`"):
        read_trace(bucket(tmp_path), "profiles/digits", "digits", 1, ranks=2)
    # An earlier run with more ranks wrote the trace.
    source = bucket(tmp_path, "steps-5-9.json.gz")
    assert read_trace(source, "profiles/digits", "digits", 0, ranks=0)[1]


def test_read_trace_of_xla_names_make_tensorboard(tmp_path: Path) -> None:
    (tmp_path / "profiles" / "digits" / "proc_0").mkdir(parents=True)
    with pytest.raises(ProfileError, match="make tensorboard`"):
        read_trace(bucket(tmp_path), "profiles/digits", "digits", 0)


def test_name_of_an_operation_cannot_end_the_script_of_the_page() -> None:
    text = page("A job", [event("</script><b>", 0, 1)])
    assert text.count("</script>") == 1


@needs_chromium
def test_browser_lists_the_operations_of_a_page(tmp_path: Path) -> None:
    file = tmp_path / "profile.html"
    file.write_text(page("Job digits, rank 0, steps 1 to 2", NESTED), encoding="utf-8")
    drawn = draw(file.as_uri(), tmp_path)
    assert drawn.stdout.count("<tr><td") == 5
    assert "0.42 ms from the first to the last operation." in drawn.stdout
    assert "Content Security Policy" not in drawn.stderr
