"""The digits that the trainer's tests learn."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest

ALL = os.environ.get("TRAINYARD_ALL_FAULTS") == "1"
KILLS, LEAVES, CLEAN = (20, 20, 10) if ALL else (3, 4, 1)
"""How often a rank is killed, a run is told to leave, and one to which nothing happens is watched for false alarms."""
DATA = Path(__file__).parent / "data"


@pytest.fixture(scope="session")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of 500 real digits in IDX files."""
    folder = tmp_path_factory.mktemp("digits")
    for packed in DATA.glob("*.gz"):
        (folder / packed.stem).write_bytes(gzip.decompress(packed.read_bytes()))
    return folder


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say aloud which faults were not tried."""
    if not ALL and any("test_faults" in report.nodeid for report in terminalreporter.getreports("passed")):
        terminalreporter.write_line(
            f"trainer faults: {KILLS} of 20 kills, {LEAVES} of 20 leaves and {CLEAN} of 10 runs without a false alarm "
            "were tried; the others are NOT RUN (TRAINYARD_ALL_FAULTS=1 tries all)"
        )
