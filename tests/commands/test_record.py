"""The record of a run: what it ran from, what it took."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from commands.job_state import JobState
from commands.record import completed, write
from run_record import commit, plan_digest, run_record
from stack_config import parse
from tests.commands.pull_requests import JOB, STACK, changed

OVER = JobState(
    name="digits",
    kind="indexed-job",
    state="complete",
    started="2026-11-21T10:00:00Z",
    finished="2026-11-21T11:30:00Z",
)


def test_a_record_says_what_a_job_ran_from() -> None:
    config = parse(STACK)
    found = run_record(config, config.jobs[0])
    assert found["commit"] == commit()
    assert len(commit().removesuffix("-changed")) == 40
    assert (found["pools"], found["chips"]) == (["gpus"], 4)
    assert found["usd_per_hour"] == pytest.approx(0.906, abs=0.01)


def test_the_plan_changes_with_the_settings_and_with_nothing_else() -> None:
    config = parse(STACK)
    digest = plan_digest(config, config.jobs[0])
    assert plan_digest(parse(STACK), parse(STACK).jobs[0]) == digest
    other = parse(changed({"nodes": 4}))
    assert plan_digest(other, other.jobs[0]) != digest
    other = parse(changed(jobs=[{**JOB, "flags": {"epochs": 3}}]))
    assert plan_digest(other, other.jobs[0]) != digest


def test_what_has_no_price_has_none_in_the_record() -> None:
    platform = {"kind": "eks", "pools": [{"name": "h200", "machine_type": "p5e.48xlarge", "nodes": 1}]}
    job = {**JOB, "accelerator": "nvidia-h200-141gb", "accelerators_per_host": 8, "hosts": 1}
    config = parse({"platform": platform, "jobs": [job]})
    found = run_record(config, config.jobs[0])
    assert (found["pools"], found["chips"], found["usd_per_hour"]) == (["h200"], 8, None)
    assert completed(found, OVER)["usd"] is None


def test_a_run_that_is_over_is_written_with_its_chip_hours_and_price(tmp_path: Path) -> None:
    config = parse(STACK)
    found = completed(run_record(config, config.jobs[0]), OVER)
    assert (found["hours"], found["chip_hours"]) == (1.5, 6.0)
    assert found["usd"] == pytest.approx(1.5 * found["usd_per_hour"], abs=0.001)
    written = write(f"file://{tmp_path}", found)
    assert json.loads(Path(written.removeprefix("file://")).read_text(encoding="utf-8")) == found
    assert written == f"file://{tmp_path}/digits/run-record.json"
