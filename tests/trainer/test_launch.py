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
    environment = {**os.environ, "PYTHONPATH": str(PROJECT), "OMP_NUM_THREADS": "1", "TMPDIR": str(tmp_path)}
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


def test_a_restart_does_not_wait_for_the_launcher_to_load_a_compiler(tmp_path: Path) -> None:
    (tmp_path / "fails.py").write_text("raise SystemExit(70)", encoding="ascii")
    program = """
import sys
from trainer.launch import main
if __name__ == "__main__":
    sys.argv[1:] = ["--standalone", "-m", "fails"]
    code = main()
    sys.exit("loaded" if "torch._dynamo.config" in sys.modules else code)
"""
    (tmp_path / "launches.py").write_text(program, encoding="ascii")
    done = subprocess.run(
        [sys.executable, str(tmp_path / "launches.py")],
        env={**os.environ, "PYTHONPATH": f"{PROJECT}:{tmp_path}", "OMP_NUM_THREADS": "1", "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 70, done.stderr
    assert "failed (exitcode: 70)" in done.stderr
