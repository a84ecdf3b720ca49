"""Pytest plugin that groups tests into lanes by what they use, selects tests, and orders them on the workers.

`tests/lanes.json` lists the lane of each test that is not fast. `python -m commands.test --record-lanes` records what
tests use and writes the file. A fast test fails if it starts a process (except `git` and `ldconfig`), opens a
connection or sleeps for long.
"""

from __future__ import annotations

import itertools
import json
import multiprocessing.util
import os
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import IntEnum
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

from tests.promises import core

TABLE = Path(__file__).with_name("lanes.json")
MAX_SLEEP_SECONDS = 1.0
"""Maximum total sleep of a fast test, in seconds. Enough for a few polls on a busy machine."""
UNCOUNTED_SLEEP_SECONDS = 0.05
"""Longest sleep that is not counted, in seconds. A thread that waits for another thread sleeps this briefly."""
MAX_FAST_SECONDS = 1.0
"""Maximum duration of a fast test function with all its parameters, in seconds. Slower ones go to lane `process`."""
SHARED_CLUSTERS = ("commands", "local", "rehearsal")
"""Folders of tests. The tests of a folder share one cluster."""
CORE = "core"
"""Key of the tests that `make test` runs in addition to the fast lane and the tests of docs/promises.md for README.

These tests are brief tests of other lanes, and tests that break only the time limit of the fast lane.
"""
MAX_BRIEF_SECONDS = 1.0
"""Maximum duration of a brief test function with all its parameters, in seconds."""
CLUSTER_EVENT = "trainyard.tests.cluster"
"""Audit event that a fixture raises when it returns a cluster. A cluster that already runs causes no other event."""
CLUSTER_PROGRAMS = ("infra.local", "simulation.cluster", "commands.rehearse", "kube-apiserver")
"""Beginnings of the names of the programs that only tests of the lane `cluster` run."""


class Lane(IntEnum):
    """Lanes by what their tests use, the cheapest first."""

    FAST = 0
    """No process, no connection, no long sleep."""
    PROCESS = 1
    """Processes such as ranks of torch, connections, long sleeps."""
    PULUMI = 2
    """The Pulumi CLI, its language host or a provider."""
    CLUSTER = 3
    """A Kubernetes control plane on this machine."""
    END_TO_END = 4
    """`make` in a separate checkout."""

    @property
    def label(self) -> str:
        """Name on the command line, such as `end_to_end`."""
        return self.name.lower()


def command_lane(words: Iterable[object]) -> Lane:
    """Return the lane of a test that runs a command.

    `git` and `ldconfig` are quick, so a fast test may run them.
    """
    texts = [each.decode(errors="replace") if isinstance(each, bytes) else str(each) for each in words]
    names = [Path(each).name for each in texts]
    if names[0] in ("git", "ldconfig"):
        return Lane.FAST
    if "make" in names:
        return Lane.END_TO_END
    if any(name.startswith(CLUSTER_PROGRAMS) for name in names):
        return Lane.CLUSTER
    return Lane.PULUMI if any(name.startswith("pulumi") for name in names) else Lane.PROCESS


LANE = pytest.StashKey[Lane]()
"""Lane of a collected test."""


class Recorder:
    """Highest lane that the current test or fixture has used, and the call that used it."""

    def __init__(self) -> None:
        self.lane, self.cause, self.slept_seconds = Lane.FAST, "", 0.0

    def use(self, lane: Lane, cause: str) -> None:
        """Record a call that needs a lane."""
        if lane > self.lane:
            self.lane, self.cause = lane, cause

    def pop(self) -> tuple[Lane, str]:
        """Return the lane and its cause, and reset them."""
        found = self.lane, self.cause
        self.lane, self.cause, self.slept_seconds = Lane.FAST, "", 0.0
        return found

    def audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Record an audit event: https://docs.python.org/3/library/audit_events.html"""
        if event == "subprocess.Popen":
            words = arguments[1] if isinstance(arguments[1], list | tuple) else str(arguments[1]).split()
            self.use(command_lane(words), " ".join(map(str, words)))
        elif event == CLUSTER_EVENT:
            self.use(Lane.CLUSTER, "the shared cluster")
        elif event in ("os.fork", "os.forkpty", "os.posix_spawn", "os.exec"):
            self.use(Lane.PROCESS, event)
        elif event == "socket.connect" and isinstance(arguments[1], tuple):
            self.use(Lane.PROCESS, f"connection to {arguments[1]}")


RECORDER = Recorder()
FIXTURES: dict[int, tuple[Lane, str]] = {}
"""Lane and cause of each fixture's set-up, by the id of its definition."""
sys.addaudithook(RECORDER.audit)
_spawn, _sleep = multiprocessing.util.spawnv_passfds, time.sleep


def _recorded_spawn(path: bytes, words: Any, descriptors: Sequence[int]) -> int:
    # `multiprocessing` starts processes without an audit event.
    RECORDER.use(Lane.PROCESS, "multiprocessing")
    return _spawn(path, words, descriptors)


def _recorded_sleep(seconds: float) -> None:
    # Python before 3.13 sleeps without an audit event.
    if seconds > UNCOUNTED_SLEEP_SECONDS:
        RECORDER.slept_seconds += seconds
    if RECORDER.slept_seconds > MAX_SLEEP_SECONDS:
        RECORDER.use(Lane.PROCESS, f"sleeps of {RECORDER.slept_seconds:.1f} s")
    _sleep(seconds)


setattr(multiprocessing.util, "spawnv_passfds", _recorded_spawn)  # noqa: B010  # mypy rejects a plain assignment of a function
setattr(time, "sleep", _recorded_sleep)  # noqa: B010  # as above


def function_id(node_id: str) -> str:
    """Return the node id of a test without its parameters."""
    return node_id.partition("[")[0]


def read_table() -> dict[str, Lane]:
    """Return the lane of each node id in lanes.json. A node id names a test or a file."""
    return {name: Lane[label.upper()] for label, names in _content().items() if label != CORE for name in names}


def read_core() -> frozenset[str]:
    """Return the node ids of the entry `core`, without parameters."""
    return frozenset(_content().get(CORE, ()))


def _content() -> dict[str, list[str]]:
    found: dict[str, list[str]] = json.loads(TABLE.read_text(encoding="utf-8")) if TABLE.exists() else {}
    return found


def lane_of(name: str, table: dict[str, Lane]) -> Lane:
    """Return the lane of a test by its node id without parameters."""
    file = name.partition("::")[0]
    if file.startswith("tests/end_to_end/"):
        return Lane.END_TO_END  # tests of a file share a checkout, even if some only read its state
    return table.get(name, table.get(file, Lane.FAST))


def write_table(used: dict[str, Lane], seconds: dict[str, float]) -> None:
    """Write the lanes of the tests that ran, and keep those of all other tests.

    If all tests of a file have the same lane, the table has one entry for the file.
    """
    files_run = {name.partition("::")[0] for name in used}
    known = {name: lane for name, lane in read_table().items() if "::" in name or name not in files_run} | used
    for name in used:
        if used[name] is Lane.FAST and seconds[name] > MAX_FAST_SECONDS:
            known[name] = Lane.PROCESS
    by_file = defaultdict[str, dict[str, Lane]](dict)
    for name, lane in known.items():
        by_file[name.partition("::")[0]][name] = lane
    table: dict[str, list[str]] = {each.label: [] for each in Lane if each}
    for file, lanes in sorted(by_file.items()):
        # If a file did not run, its fast tests are unknown. One entry for the file could then be wrong.
        is_one_entry = file in files_run and len(set(lanes.values())) == 1
        for name, lane in [(file, min(lanes.values()))] if is_one_entry else sorted(lanes.items()):
            if lane:
                table[lane.label].append(name)
    slow = {name: lane for name, lane in used.items() if known[name]}
    chosen = {name for name, lane in slow.items() if lane is Lane.FAST or seconds[name] < MAX_BRIEF_SECONDS}
    table[CORE] = sorted(chosen | (read_core() - set(used)))
    TABLE.write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options that choose tests."""
    group = parser.getgroup("lanes")
    group.addoption("--lane", help="run the tests of these lanes only, separated by commas")
    group.addoption(
        "--core",
        action="store_true",
        help="run the fast lane, the tests in `core` of lanes.json, and the tests that tests/promises.py names",
    )
    group.addoption("--rest", action="store_true", help="run what --core leaves out, and all tests marked `sequence`")
    group.addoption("--record-lanes", action="store_true", help="write the lanes of these tests to tests/lanes.json")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Select the requested tests. Slow lanes come first, so that no worker is left with a long test at the end."""
    table = read_table()
    slowest: dict[Path, Lane] = {}
    for item in items:
        item.stash[LANE] = lane_of(function_id(item.nodeid), table)
        slowest[item.path] = max(slowest.get(item.path, Lane.FAST), item.stash[LANE])
    chosen = _chosen(config)
    left_out = [item for item in items if not chosen(item)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
    if hasattr(config, "workeroutput"):
        config.workeroutput["left_out"] = len(left_out)
    items[:] = sorted(
        (item for item in items if chosen(item)),
        key=lambda each: -slowest[each.path] if each.stash[LANE] else 0,
    )
    for item in items:
        item.user_properties.append(("lane", item.stash[LANE].label))


def _lanes_of(config: pytest.Config) -> set[Lane]:
    """Return the lanes that `--lane` names; empty without it. Raises UsageError for an unknown name."""
    known = {each.label: each for each in Lane}
    names = [name.strip().lower().replace("-", "_") for name in (config.getoption("--lane") or "").split(",")]
    if unknown := [name for name in names if name and name not in known]:
        raise pytest.UsageError(f"--lane {', '.join(unknown)}: must be one of {', '.join(known)}")
    return {known[name] for name in names if name}


def _chosen(config: pytest.Config) -> Callable[[pytest.Item], bool]:
    """Return a function that is true for the tests that the options choose."""
    if wanted := _lanes_of(config):
        return lambda item: item.stash[LANE] in wanted
    if not config.getoption("--core") and not config.getoption("--rest"):
        return lambda _item: True
    names = core() | read_core()

    def is_core(item: pytest.Item) -> bool:
        return item.stash[LANE] is Lane.FAST or not names.isdisjoint((item.nodeid, function_id(item.nodeid)))

    if config.getoption("--core"):
        return is_core
    return lambda item: not is_core(item) or item.get_closest_marker("sequence") is not None


class LaneScheduling(LoadScopeScheduling):  # type: ignore[misc]  # xdist publishes no types
    """Scheduler with groups, each on one worker: a file's fast tests, a file's slow tests, a shared cluster's tests."""

    def __init__(self, config: pytest.Config, log: Any = None) -> None:
        super().__init__(config, log)
        self._table = read_table()

    def _split_scope(self, nodeid: str) -> str:
        lane = lane_of(function_id(nodeid), self._table)
        file = Path(nodeid.partition("::")[0])
        if lane is Lane.CLUSTER and file.parent.name in SHARED_CLUSTERS:
            return file.parent.name
        return f"{file} {lane is Lane.FAST}"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LaneScheduling:
    """Return the scheduler of the tests on the workers."""
    return LaneScheduling(config, log)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object | None) -> None:
    """Print the exit status of a worker that died, negative for a signal."""
    if error:
        status = node.gateway._io.popen.wait(timeout=10)
        print(f"\nworker {node.gateway.id} ended with exit status {status}")


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any]) -> Iterator[Any]:
    """Record what a fixture uses."""
    outside = RECORDER.pop()
    try:
        return (yield)
    finally:
        FIXTURES[id(fixturedef)] = RECORDER.pop()
        RECORDER.use(*outside)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[Any]:
    """Record what a test uses. Fail a fast test that uses more than the fast lane allows."""
    RECORDER.pop()
    try:
        result = yield
    finally:
        used = [RECORDER.pop()]
        definitions = item._fixtureinfo.name2fixturedefs.values()  # type: ignore[attr-defined]  # no public way
        used += [FIXTURES[id(each)] for each in itertools.chain(*definitions) if id(each) in FIXTURES]
        lane, cause = max(used, default=(Lane.FAST, ""))
        item.user_properties.append(("used", lane.label))
    recording = item.config.getoption("--record-lanes")
    if lane > Lane.FAST and item.stash[LANE] is Lane.FAST and not recording:
        pytest.fail(
            f"this test is in the fast lane but uses what the lane does not allow ({cause}); run "
            "`python -m commands.test --record-lanes` with the test's file to change its lane",
            pytrace=False,
        )
    return result


class Summary:
    """Summary of a run: the time of each lane, and the tests that did not run."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.seconds: dict[str, float] = defaultdict(float)
        self.tests: dict[str, set[str]] = defaultdict(set)
        self.used: dict[str, Lane] = {}
        self.function_seconds: dict[str, float] = defaultdict(float)
        self.left_out = 0

    def pytest_deselected(self, items: list[pytest.Item]) -> None:
        """Count the tests that the options leave out in a run without workers."""
        self.left_out = len(items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Read from a worker how many tests the options leave out. Each worker collects all tests."""
        self.left_out = getattr(node, "workeroutput", {}).get("left_out", self.left_out)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add the time of a test's phase to its lane."""
        properties = {str(name): str(value) for name, value in report.user_properties}
        if "lane" not in properties:
            return  # xdist's report of a test whose worker died has no lane.
        self.seconds[properties["lane"]] += report.duration
        self.tests[properties["lane"]].add(report.nodeid)
        name = function_id(report.nodeid)
        self.function_seconds[name] += report.duration
        if "used" in properties:
            self.used[name] = max(self.used.get(name, Lane.FAST), Lane[properties["used"].upper()])

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the summary. With `--record-lanes`, write the table of lanes."""
        for each in Lane:
            if each.label in self.seconds:
                count, seconds = len(self.tests[each.label]), self.seconds[each.label]
                terminalreporter.write_line(f"lane {each.label}: {count} tests, {seconds:.0f} s of work")
        if self.config.getoption("--record-lanes"):
            write_table(self.used, self.function_seconds)
        skipped = Counter(_reason(report) for report in terminalreporter.getreports("skipped"))
        for reason, count in sorted(skipped.items()):
            terminalreporter.write_line(f"NOT RUN: {count} tests: {reason}")
        if self.left_out:
            terminalreporter.write_line(
                f"NOT RUN: {self.left_out} tests outside this selection; `make test-all` and `make test-long` run them"
            )
        if os.environ.get("TRAINYARD_TESTS") != "soak":
            terminalreporter.write_line(
                "NOT RUN: most random sequences and kills; TRAINYARD_TESTS=soak runs all of them and takes hours"
            )


def _reason(report: Any) -> str:
    """Return the reason of a skipped test."""
    return str(report.longrepr[2]).removeprefix("Skipped: ")


def pytest_configure(config: pytest.Config) -> None:
    """Reject unknown lanes before the tests are collected. Register the summary in the process that prints."""
    _lanes_of(config)
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Summary(config))
