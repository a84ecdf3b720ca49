"""What holds for every test: signals as usual, however tests are started; no GPU; long ones are asked for."""

import gc
import os
import signal

import pytest

# A process in the background of a shell ignores Ctrl-C, and so does all that it starts; some tests send it.
signal.signal(signal.SIGINT, signal.default_int_handler)
VISIBLE_GPUS = os.environ.get("CUDA_VISIBLE_DEVICES")
"""Which GPUs the tests may use: as said by whoever started them."""
# The trainer would take it, and two ranks of a test have one each on no small machine.
os.environ["CUDA_VISIBLE_DEVICES"] = ""

ALL = os.environ.get("TRAINYARD_TESTS") == "all"
LEFT_OUT = "long; TRAINYARD_TESTS=all runs it"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out what takes minutes, unless it is asked for."""
    for item in items:
        if not ALL and item.get_closest_marker("long"):
            item.add_marker(pytest.mark.skip(reason=LEFT_OUT))


def pytest_runtest_teardown() -> None:
    """Collect garbage again: the program, run in the tests' own process, leaves that off."""
    gc.enable()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say aloud what was left out."""
    left_out = [each for each in terminalreporter.getreports("skipped") if LEFT_OUT in str(each.longrepr)]
    if left_out:
        files = sorted({each.nodeid.partition("::")[0] for each in left_out})
        terminalreporter.write_line(
            f"{len(left_out)} long tests are NOT RUN, of {', '.join(files)} (TRAINYARD_TESTS=all runs them)"
        )
