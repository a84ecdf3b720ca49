"""Python interpreter and environment of a program, from the `runtime.options` of its Pulumi.yaml."""

import os
import shutil
from pathlib import Path

from pulumi.runtime.proto import language_pb2

ROOT = Path(__file__).resolve().parents[3]


class InterpreterMissing(Exception):
    """Error for a missing Python of a program. The message contains the remedy."""


def program_python(info: language_pb2.ProgramInfo) -> Path:
    """Return the interpreter of the program's virtual environment, or the first `python3` on PATH without one."""
    options = dict(info.options)
    if options.get("toolchain", "pip") != "pip":
        raise InterpreterMissing(
            f"runtime.options.toolchain is {options['toolchain']!r}; this stand-in knows 'pip' only. "
            "Set it to 'pip' with a virtualenv, or install the real pulumi-language-python."
        )
    if virtualenv := options.get("virtualenv"):
        folder = Path(info.root_directory) / str(virtualenv)
        if not (folder / "bin" / "python").exists():
            raise InterpreterMissing(
                f"The 'virtualenv' option in Pulumi.yaml is set to {str(virtualenv)!r}, but {folder} is not a "
                "virtual environment. Create it and install requirements.txt in it."
            )
        return folder / "bin" / "python"
    found = shutil.which(os.environ.get("PULUMI_PYTHON_CMD", "python3"))
    if found is None:
        raise InterpreterMissing("No python3 on PATH and no runtime.options.virtualenv in Pulumi.yaml. Set one.")
    return Path(found)


def program_environment(python: Path) -> dict[str, str]:
    """Return the environment of the program. Its virtual environment is active, and this project is not on its path."""
    environment = dict(os.environ)
    paths = [path for path in environment.pop("PYTHONPATH", "").split(os.pathsep) if path and Path(path) != ROOT]
    if paths:
        environment["PYTHONPATH"] = os.pathsep.join(paths)
    if (python.parent.parent / "pyvenv.cfg").exists():
        environment["VIRTUAL_ENV"] = str(python.parent.parent)
        environment["PATH"] = os.pathsep.join([str(python.parent), environment.get("PATH", os.defpath)])
        environment.pop("PYTHONHOME", None)
    environment["PYTHONUNBUFFERED"] = "1"
    return environment
