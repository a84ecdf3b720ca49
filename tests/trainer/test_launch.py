"""The launcher ends with the code of the rank that failed first, raised where an operator retries high codes only."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]


@pytest.mark.parametrize(("code", "offset", "expected"), [(75, "128", 203), (78, "128", 78), (75, "", 75)])
def test_exit_codes(tmp_path: Path, code: int, offset: str, expected: int) -> None:
    script = tmp_path / "ends.py"
    script.write_text(f"raise SystemExit({code})", encoding="ascii")
    environment = {**os.environ, "PYTHONPATH": str(PROJECT), "OMP_NUM_THREADS": "1"}
    if offset:
        environment["TRAINYARD_RETRYABLE_OFFSET"] = offset
    done = subprocess.run(
        [sys.executable, "-m", "trainer.launch", "--standalone", str(script)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == expected, done.stderr
