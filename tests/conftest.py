"""Settings of all tests: default signals in every environment, no GPU, and long tests only on request."""

import gc
import os
import signal

import pytest

# A background process of a shell ignores Ctrl-C, and so do its children. Some tests send that signal.
signal.signal(signal.SIGINT, signal.default_int_handler)
VISIBLE_GPUS = os.environ.get("CUDA_VISIBLE_DEVICES")
"""GPUs that the tests may use, as set by the user."""
# The trainer would use a GPU, and most machines have fewer GPUs than a test has ranks.
os.environ["CUDA_VISIBLE_DEVICES"] = ""

ALL = os.environ.get("TRAINYARD_TESTS") == "all"
LEFT_OUT = "long; TRAINYARD_TESTS=all runs it"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip tests that take minutes, unless they are requested."""
    for item in items:
        if not ALL and item.get_closest_marker("long"):
            item.add_marker(pytest.mark.skip(reason=LEFT_OUT))


def pytest_runtest_teardown() -> None:
    """Enable garbage collection again: the program, run in the tests' own process, disables it."""
    gc.enable()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Report the tests that were not run."""
    left_out = [each for each in terminalreporter.getreports("skipped") if LEFT_OUT in str(each.longrepr)]
    if left_out:
        files = sorted({each.nodeid.partition("::")[0] for each in left_out})
        terminalreporter.write_line(
            f"{len(left_out)} long tests are NOT RUN, of {', '.join(files)} (TRAINYARD_TESTS=all runs them)"
        )
