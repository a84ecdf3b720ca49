"""`setup/python`: only a complete environment replaces an existing environment."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]
FOLDER, REQUIREMENTS = ".venv-test", "requirements-test.txt"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a folder with `setup/python`."""
    (tmp_path / "setup").mkdir()
    for name in ("python", "uv.txt"):
        shutil.copy(PROJECT / "setup" / name, tmp_path / "setup")
    return tmp_path


def write_pin(checkout: Path, version: str) -> Path:
    """Write a wheel of this version with one module, and the requirements that pin it. Return the wheel's path."""
    wheel = checkout / f"sample-{version}-py3-none-any.whl"
    info = f"sample-{version}.dist-info"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("sample.py", f"def main():\n    print({version!r})\n")
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: sample\nVersion: {version}\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/entry_points.txt", "[console_scripts]\nsample = sample:main\n")
        archive.writestr(f"{info}/RECORD", "")
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    pin = f"sample @ {wheel.as_uri()} --hash=sha256:{digest}\n"
    (checkout / REQUIREMENTS).write_text(pin, encoding="utf-8")
    return wheel


def start(checkout: Path) -> subprocess.Popen[str]:
    """Start `setup/python` without a network."""
    words = [str(checkout / "setup" / "python"), FOLDER, REQUIREMENTS]
    environment = os.environ | {"UV_OFFLINE": "1"}
    return subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def install(checkout: Path) -> int:
    """Run `setup/python` and return its exit status."""
    with start(checkout) as process:
        process.communicate()
    return process.returncode


def sample(checkout: Path) -> str:
    """Return the output of the program in the environment."""
    program = checkout / FOLDER / "bin" / "sample"
    return subprocess.run([program], capture_output=True, text=True, check=True).stdout.strip()


def test_python_environment_whose_new_pins_cannot_be_installed_stays(checkout: Path) -> None:
    write_pin(checkout, "1")
    assert install(checkout) == 0
    write_pin(checkout, "2").unlink()
    assert install(checkout) != 0
    assert sample(checkout) == "1"


def test_python_environment_with_new_pins_is_replaced(checkout: Path) -> None:
    for version in ("1", "2"):
        write_pin(checkout, version)
        assert install(checkout) == 0
        assert sample(checkout) == version
    assert [path.name for path in checkout.glob(f"{FOLDER}*")] == [FOLDER]


def test_python_environment_of_two_processes_is_installed_once(checkout: Path) -> None:
    write_pin(checkout, "1")
    with start(checkout) as one, start(checkout) as other:
        printed = "".join(process.communicate()[0] for process in (one, other))
    assert (one.returncode, other.returncode) == (0, 0)
    assert printed.count("setup: Python environment") == 1
    assert sample(checkout) == "1"
