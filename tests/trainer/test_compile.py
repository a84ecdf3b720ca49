"""`--compile` compiles kernels, also on several ranks, and a machine without a compiler gets an error."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.trainer.processes import run
from trainer.exit_codes import BAD_CONFIGURATION

FLAGS = ("--epochs=1", "--log-steps=1000")


@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs g++ on a CPU, and there is none here")
def test_compile_on_ranks_learns_like_eager_mode(digits: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    plain = run(*FLAGS, recipe="digits", processes=2, data=digits)
    assert not list(tmp_path.rglob("*.so"))
    compiled = run(*FLAGS, "--compile", recipe="digits", processes=2, data=digits)
    assert not any(plain.codes + compiled.codes), compiled.output
    assert list(tmp_path.rglob("*.so")), "no kernel was made"
    ours, theirs = (float(ended.events("test")[0]["loss"]) for ended in (compiled, plain))
    assert ours == pytest.approx(theirs, rel=0.02)


def test_compile_without_compiler_is_rejected(digits: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("CXX", str(tmp_path / "g++"))
    ended = run(*FLAGS, "--compile", recipe="digits", data=digits)
    assert ended.codes == [BAD_CONFIGURATION], ended.output
    assert "compile is True; allowed is False where torch.compile makes no kernels" in ended.output
    assert "No working C++ compiler" in ended.output
