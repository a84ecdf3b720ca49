"""Benchmark measurements: ratio, spread, line and record. The two Pulumi programs create the same objects."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import pulumi
import pytest

from bench.control_plane import NAMESPACE, default_job, handwritten_config, idle_job, our_config
from bench.measure import PROJECT, Measure, alternate, machine
from infra.local import lifecycle
from tests.recording import run

MEASURE = Measure(name="noop-up", ours=(2.0, 2.1, 2.1), theirs=(2.0, 2.0, 1.5), goal=1.1)


def test_measure_ratio_is_median_and_spread_is_extremes() -> None:
    assert MEASURE.ratio == pytest.approx(1.05)
    assert MEASURE.spread == pytest.approx((1.0, 1.4))
    assert MEASURE.is_met


def test_measure_on_temporarily_slow_machine_keeps_ratio() -> None:
    measure = Measure(name="x", ours=(1.0, 3.0, 3.0), theirs=(1.0, 1.0, 3.0), goal=1.1)
    assert measure.ratio == 1.0


def test_measure_line_has_name_sides_ratio_goal_and_verdict() -> None:
    line = MEASURE.line()
    assert line.startswith("noop-up  ours 2.10 s  theirs 2.00 s  ratio 1.050 (1.000 to 1.400 in 3 pairs)  goal 1.10")
    assert line.endswith("met")
    assert Measure(name="x", ours=(1.2,), theirs=(1.0,), goal=1.1).line().endswith("missed")


def test_measure_record_has_pairs_and_verdict() -> None:
    record = json.loads(json.dumps(MEASURE.record()))
    assert (record["name"], record["met"], record["goal"]) == ("noop-up", True, 1.1)
    assert record["pairs"] == [[2.0, 2.0], [2.1, 2.0], [2.1, 1.5]]


def test_alternate_times_sides_in_turn_and_discards_first_pair() -> None:
    calls: list[str] = []

    def side(name: str) -> float:
        calls.append(name)
        return float(len(calls))

    measure = alternate("x", 1.0, lambda: side("A"), lambda: side("B"), pairs=2)
    assert calls == ["A", "B"] * 3
    assert (measure.ours, measure.theirs) == ((3.0, 5.0), (4.0, 6.0))


def test_machine_has_cores_cpu_and_versions() -> None:
    found = machine()
    assert found["cores"] >= 1
    assert found["cpu"]
    assert set(found["versions"]) == {"python", "pulumi", "pulumi-kubernetes", "torch"}


def objects(program: Path, config: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Return the Kubernetes objects that a program creates for a configuration."""
    texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in config.items()}
    monkeypatch.setattr(pulumi, "export", lambda _name, _value: None)

    async def body() -> None:
        pulumi.runtime.set_all_config(texts)
        found = runpy.run_path(str(program))
        if "main" in found:
            await found["main"]()

    return run(body).manifests()


def test_handwritten_program_creates_same_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifecycle, "check_machine", lambda _settings: [])
    job = idle_job(default_job())
    config = {f"trainyard:{key}": value for key, value in handwritten_config(job, NAMESPACE).items()}
    ours = objects(PROJECT / "__main__.py", our_config(job), monkeypatch)
    theirs = objects(PROJECT / "bench" / "handwritten" / "__main__.py", config, monkeypatch)

    def key(each: dict[str, Any]) -> str:
        return str(each["kind"])

    assert sorted(theirs, key=key) == sorted(ours, key=key)
