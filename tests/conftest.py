"""Settings of all tests: default signal handlers, no GPU, and long tests only on request."""

import atexit
import gc
import os
import signal
import sys

import pytest

# A shell's background process ignores Ctrl-C (SIGINT), and so do its children. Some tests send SIGINT.
signal.signal(signal.SIGINT, signal.default_int_handler)
# A program under `nohup` ignores SIGHUP, and so do its children. Some tests send SIGHUP.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
VISIBLE_GPUS = os.environ.get("CUDA_VISIBLE_DEVICES")
"""The user's CUDA_VISIBLE_DEVICES, for the tests that need a GPU."""
# The trainer would use a GPU, and most machines have fewer GPUs than a test has ranks.
os.environ["CUDA_VISIBLE_DEVICES"] = ""

pytest_plugins = ["tests.lanes"]

# pytest imports torch and the clouds' SDKs when it collects the tests. Garbage collection would take a tenth of this
# time.
gc.disable()

SOAK = os.environ.get("TRAINYARD_TESTS") == "soak"
"""True if tests of random sequences, interrupts, kills and damaged inputs run at full length, for hours."""
LONG = SOAK or os.environ.get("TRAINYARD_TESTS") == "long"
"""True if the tests marked `long` run."""
LONG_SKIP_REASON = "long; `make test-long` runs it"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip tests that take minutes, unless they are requested."""
    for item in items:
        if not LONG and item.get_closest_marker("long"):
            item.add_marker(pytest.mark.skip(reason=LONG_SKIP_REASON))


def pytest_collection_finish() -> None:
    """Exempt the objects of all imported modules from garbage collection."""
    gc.freeze()
    # Pulumi's mocks create many objects in cycles. With the default thresholds, collection takes a tenth of the time.
    gc.set_threshold(20_000, 20, 20)
    gc.enable()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Keep the session for `_exit`. Save the measured coverage, because a worker of xdist does not save it."""
    global _session
    _session = session
    if "coverage" in sys.modules and (measured := sys.modules["coverage"].Coverage.current()):
        measured.save()


def _exit() -> None:
    """End the process without freeing its objects. Freeing them takes up to ten seconds."""
    if _session:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(_session.exitstatus)


_session: pytest.Session | None = None
# Exit functions run in reverse order. `_exit` must run last, so register it before the tests import libraries.
atexit.register(_exit)


def pytest_runtest_teardown() -> None:
    """Enable garbage collection. `__main__.py` disables it, and some tests run that program in this process."""
    gc.enable()
