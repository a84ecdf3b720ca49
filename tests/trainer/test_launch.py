"""The launcher: exit codes, invalid flags, and ranks whose launcher is killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.trainer.processes import PROJECT, launched, run_python
from tests.trainer.recipes import Recipe


@pytest.mark.parametrize(("code", "offset", "expected"), [(75, "128", 203), (78, "128", 78), (75, "", 75)])
def test_launcher_exits_with_the_code_of_the_failed_rank_plus_the_offset_if_retryable(
    tmp_path: Path, code: int, offset: str, expected: int
) -> None:
    script = tmp_path / "exits.py"
    script.write_text(f"raise SystemExit({code})", encoding="ascii")
    variables = {"TRAINYARD_RETRYABLE_OFFSET": offset} if offset else {}
    result = run_python("-m", "trainer.launch", "--standalone", str(script), TMPDIR=str(tmp_path), **variables)
    assert result.returncode == expected, result.stderr


def test_failed_rank_does_not_make_the_launcher_load_torchs_compiler(tmp_path: Path) -> None:
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
    result = run_python(str(tmp_path / "launches.py"), PYTHONPATH=f"{PROJECT}:{tmp_path}", TMPDIR=str(tmp_path))
    assert result.returncode == 70, result.stderr
    assert "failed (exitcode: 70)" in result.stderr
    assert "Traceback" not in result.stderr, "the launcher must print no traceback"


@pytest.mark.parametrize(("name", "forked"), [("digits", True), ("digits", False), ("language", True)])
def test_ranks_with_killed_launcher_save_and_stop(
    tmp_path: Path, both_recipes: dict[str, Recipe], name: str, *, forked: bool
) -> None:
    recipe = both_recipes[name]
    command = ["-m", "trainer"] if forked else [f"{PROJECT}/trainer/__main__.py"]
    flags = ("--epochs=999", "--log-steps=1", *recipe.flags, f"--bucket=file://{tmp_path}/bucket")
    words = ("--standalone", "--nproc-per-node=2", *command, name, *flags)
    with launched(*words, TMPDIR=str(tmp_path), TRAINYARD_DATA=str(recipe.data)) as launcher:
        launcher.wait_for("train epoch=1 step=3/")
        launcher.process.kill()
        # The ranks hold the pipe, so the output ends when both have exited.
        rest = launcher.all()
    # The first rank that notices the lost launcher stops both ranks, so the other rank may print no error.
    assert rest.count("error: the launcher is gone; this rank stops as if preempted") in {1, 2}, rest
    assert rest.count("exit code 75") == 2, rest
    (step,) = {line.partition("preempted at step ")[2].partition(" ")[0] for line in rest.splitlines()} - {""}
    checkpoint = tmp_path / "bucket" / "checkpoints" / "training" / f"step-{int(step):09d}"
    assert (checkpoint / "checkpoint.json").exists()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--nope"], "error: the following arguments are required: training_script"),
        (
            ["--nproc-per-node=many", "-m", "trainer"],
            "does not accept its flags: Unsupported nproc_per_node value: many",
        ),
        (
            ["--nproc-per-node=0", "-m", "trainer"],
            "does not accept its flags: nproc_per_node = 0: must be 1 or more",
        ),
        (["--nnodes=2:1", "-m", "trainer"], "does not accept its flags: min_nodes must be > 0 and <= max_nodes"),
        (["--max-restarts=-1", "-m", "trainer"], "does not accept its flags: max_restarts must be >= 0"),
    ],
    ids=["no script", "not a number", "no process", "hosts", "restarts"],
)
def test_flags_that_torchrun_rejects_are_bad_configuration(flags: list[str], message: str) -> None:
    result = run_python("-m", "trainer.launch", *flags, TRAINYARD_RETRYABLE_OFFSET="128")
    assert result.returncode == 78, result.stderr
    assert message in result.stderr
    assert "Traceback" not in result.stderr
