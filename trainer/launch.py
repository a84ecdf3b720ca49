"""`python -m trainer.launch ...` is torchrun, but ends with the exit code of the process that failed first.

torchrun ends with 1 whatever its processes ended with, so that nobody outside could tell a preempted run from a
diverged one. It takes torchrun's own flags and environment variables.

Where it runs a module (`-m`) on CPU, its processes are forked from one that has already loaded torch: a rank that is
started again is there in a fraction of a second, and the ranks of a host load their libraries once.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import runpy
import signal
import sys
from multiprocessing import forkserver
from typing import Any

from trainer.exit_codes import BAD_CONFIGURATION, DONE, HANG, PREEMPTED, STORAGE_ERROR
from trainer.gpu import has_gpu
from trainer.rendezvous import reopen

RETRYABLE = frozenset({HANG, STORAGE_ERROR, PREEMPTED})
"""Exit codes that mean "run it again"."""

SIGNAL_BASE = 128
"""What a shell adds to a signal's number to make an exit code of it."""
MODULE = frozenset({"-m", "--module"})
"""torchrun's flags for a module in the place of a file."""
LIBRARIES = [
    *("torch._dynamo", "torch.distributed.checkpoint", "torch.nn.parallel", "torchmetrics.classification"),
    "trainer.loop",
]
"""What takes seconds to load. torch's optimisers load torch._dynamo when the first of them is made."""


def main() -> int:
    """Run this host's processes; returns the exit code.

    $TRAINYARD_RETRYABLE_OFFSET is added to codes that mean "run it again", for operators that retry high codes only.
    """
    # torchrun listens once it is loaded; until then the first process of a container would not hear it at all.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _told_too_soon)
    return _outside(_run())


def _outside(code: int) -> int:
    return code + int(os.environ.get("TRAINYARD_RETRYABLE_OFFSET", "0")) if code in RETRYABLE else code


def _told_too_soon(_number: int, _frame: object) -> None:
    print("error: told to leave before any rank was started", file=sys.stderr, flush=True)
    os._exit(_outside(PREEMPTED))


def _run() -> int:
    # Nothing is gained where the processes are not forked. A GPU's driver must not be touched before a fork, which
    # nobody promises of these imports.
    forks = not has_gpu() and not MODULE.isdisjoint(sys.argv)
    if forks:
        # Before torch is imported here, so that both load at the same time.
        multiprocessing.get_context("forkserver").set_forkserver_preload(LIBRARIES)
        forkserver.ensure_running()

    from torch.distributed import run as torchrun
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    from trainer.restarts import agent

    # Ranks that are started again, or come later, must not find in the store what those before them left there.
    os.environ.setdefault("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1")
    logging.getLogger("torch.distributed.elastic.multiprocessing.api").addFilter(_plain_traceback)
    try:
        arguments = torchrun.parse_args(sys.argv[1:])  # type: ignore[no-untyped-call]  # torch has no types for it
    except SystemExit as end:  # it has said why, or has helped
        return BAD_CONFIGURATION if end.code else DONE
    torchrun.config_from_args = read = _reading(torchrun.config_from_args, forks=forks)
    if arguments.rdzv_backend == "etcd" and reopen(arguments.rdzv_endpoint, arguments.rdzv_id):
        print("rendezvous: it was closed when a host gave up or was done, and is open again", flush=True)
    try:
        if agent.applies(arguments):
            return agent.run(*read(arguments))
        torchrun.run(arguments)  # type: ignore[no-untyped-call]  # as above
    except ChildFailedError as error:
        rank, failure = error.get_first_failure()
        code = failure.exitcode
        reason = f"exit code {code}" if code > 0 else f"signal {-code}"
        print(f"error: rank {rank} ended with {reason}", file=sys.stderr, flush=True)
        return code if code > 0 else SIGNAL_BASE - code
    except ValueError as error:
        print(f"error: torchrun does not take its flags: {error}", file=sys.stderr, flush=True)
        return BAD_CONFIGURATION
    except SignalException as told:
        # The processes were told, too, and had their time to save.
        print(f"error: {told}", file=sys.stderr, flush=True)
        return PREEMPTED
    return DONE


def run_module(name: str, *arguments: str) -> None:
    """What a forked process does: `python -m name arguments`."""
    sys.argv = [name, *arguments]
    runpy.run_module(name, run_name="__main__", alter_sys=True)


def _plain_traceback(record: logging.LogRecord) -> bool:
    """Make the traceback of a process that failed into text here: torch's formatter would load its compiler for it.

    Where the process just ended the traceback is torch's own, and says nothing that the line does not.
    """
    from torch.multiprocessing.spawn import ProcessExitedException

    if record.exc_info and isinstance(record.exc_info[1], ProcessExitedException):
        record.exc_info = None
    if record.exc_info:
        record.exc_text, record.exc_info = logging.Formatter().formatException(record.exc_info), None
    return True


def _reading(config_from_args: Any, *, forks: bool) -> Any:
    """torchrun's reading of its flags, with ValueError for all that it does not take.

    Where it `forks` a module, that gives a function to fork in place of a command to start.
    """

    def read(arguments: Any) -> tuple[Any, Any, list[str]]:
        try:
            config, command, words = config_from_args(arguments)
        except AssertionError as error:
            raise ValueError(str(error)) from error
        if config.nproc_per_node < 1:
            raise ValueError(f"nproc_per_node is {config.nproc_per_node}; allowed is 1 or more")
        if not (forks and arguments.module):
            return config, command, words
        config.start_method = "forkserver"
        return config, run_module, [arguments.training_script, *arguments.training_script_args]

    return read


if __name__ == "__main__":
    sys.exit(main())
