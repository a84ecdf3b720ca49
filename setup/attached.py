"""Bind this process's life to its parent's, and run a module or a file in it. Run by path, it needs no PYTHONPATH."""

import ctypes
import os
import runpy
import signal
import sys

PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent dies, so that `kill -9` of the engine leaves no process.

    If the parent died before the request took effect, this process has another parent, or its first write fails.
    """
    parent = os.getppid()
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    if os.getppid() != parent:
        os._exit(1)


def main(arguments: list[str]) -> None:
    """Run `-m MODULE ARGUMENTS...` or `FILE ARGUMENTS...` as the main program, bound to the parent."""
    die_with_parent()
    if arguments[0] == "-m":
        sys.argv = arguments[1:]
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    else:
        sys.path.pop(0)  # Remove this file's folder, from which the program must not import.
        sys.argv = arguments
        runpy.run_path(arguments[0], run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
