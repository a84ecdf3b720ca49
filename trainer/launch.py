"""`python -m trainer.launch ...` runs torchrun, but exits with the code of the process that failed first.

torchrun itself exits with 1 after any failure, so a preempted run would look like a diverged one. This launcher accepts
torchrun's flags and environment variables. With a static rendezvous and restarts, it runs the agent of trainer/restarts
instead of torchrun's.

On a host without a GPU, this launcher forks the processes of a module (`-m`) from a process that has already loaded
torch. The ranks of a host then load their libraries only once, and a rank restarts in a fraction of a second.
"""

from __future__ import annotations

import json
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

RETRYABLE = frozenset({HANG, STORAGE_ERROR, PREEMPTED})
"""Exit codes after which the run should start again."""
SIGNAL_BASE = 128
"""Number that a shell adds to a signal to get an exit code."""
MODULE_FLAGS = frozenset({"-m", "--module"})
"""torchrun's flags for a module instead of a file."""
PRELOADED_MODULES = [
    *("torch._dynamo", "torch.distributed.checkpoint", "torch.nn.parallel", "torchmetrics.classification"),
    "trainer.loop",
]
"""Modules that take seconds to load. The first optimizer of a process loads torch._dynamo."""


def main() -> int:
    """Run this host's processes and return the exit code.

    Add $TRAINYARD_RETRYABLE_OFFSET to codes after which the run should start again, for operators that retry only high
    codes.
    """
    # torchrun handles signals once it starts the ranks. Until then, process 1 of a container would ignore them.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _preempted_early)
    return _exit_code(_run())


def _exit_code(code: int) -> int:
    return code + int(os.environ.get("TRAINYARD_RETRYABLE_OFFSET", "0")) if code in RETRYABLE else code


def _preempted_early(_number: int, _frame: object) -> None:
    print("error: preempted before any rank was started", file=sys.stderr, flush=True)
    os._exit(_exit_code(PREEMPTED))


def _run() -> int:
    # With a GPU, do not fork: these imports may initialise the GPU's driver, which must not happen before a fork.
    should_fork = not has_gpu() and not MODULE_FLAGS.isdisjoint(sys.argv)
    if should_fork:
        # Start the other process before this one imports torch, so that both import it in parallel.
        multiprocessing.get_context("forkserver").set_forkserver_preload(PRELOADED_MODULES)
        forkserver.ensure_running()

    from torch.distributed import run as torchrun
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    from trainer.restarts import agent

    # Use a new store in each round: a restarted or late rank must not read keys of earlier ranks.
    os.environ.setdefault("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1")
    logging.getLogger("torch.distributed.elastic.multiprocessing.api").addFilter(_plain_traceback)
    try:
        arguments = torchrun.parse_args(sys.argv[1:])  # type: ignore[no-untyped-call]  # torch has no types for it
    except SystemExit as end:  # torchrun has printed the error or the help
        return BAD_CONFIGURATION if end.code else DONE
    torchrun.config_from_args = read = _config_reader(torchrun.config_from_args, should_fork=should_fork)
    if arguments.rdzv_backend == "etcd" and reopen(arguments.rdzv_endpoint, arguments.rdzv_id):
        print("rendezvous: open again after a failed or finished host had closed it", flush=True)
    try:
        if agent.is_applicable(arguments):
            return agent.run(*read(arguments))
        torchrun.run(arguments)  # type: ignore[no-untyped-call]  # as above
    except ChildFailedError as error:
        rank, failure = error.get_first_failure()
        code = failure.exitcode
        reason = f"exit code {code}" if code > 0 else f"signal {-code}"
        print(f"error: rank {rank} ended with {reason}", file=sys.stderr, flush=True)
        return code if code > 0 else SIGNAL_BASE - code
    except ValueError as error:
        print(f"error: torchrun does not accept its flags: {error}", file=sys.stderr, flush=True)
        return BAD_CONFIGURATION
    except SignalException as received:
        # The processes also got the signal, and had time to save.
        print(f"error: {received}", file=sys.stderr, flush=True)
        return PREEMPTED
    return DONE


def run_module(name: str, *arguments: str) -> None:
    """Run `python -m name arguments` in a forked process."""
    sys.argv = [name, *arguments]
    runpy.run_module(name, run_name="__main__", alter_sys=True)


def _plain_traceback(record: logging.LogRecord) -> bool:
    """Format the traceback of a failed process, because torch's own formatter would load torch's compiler.

    If the process exited without an exception, leave the traceback out, because it shows only torch's code.
    """
    from torch.multiprocessing.spawn import ProcessExitedException

    if record.exc_info and isinstance(record.exc_info[1], ProcessExitedException):
        record.exc_info = None
    if record.exc_info:
        record.exc_text, record.exc_info = logging.Formatter().formatException(record.exc_info), None
    return True


def _config_reader(config_from_args: Any, *, should_fork: bool) -> Any:
    """Return a replacement for torchrun's `config_from_args` that raises ValueError for any invalid flag.

    If `should_fork` is True and the program is a module, it returns a function to run in a fork, not a command.
    """

    def read(arguments: Any) -> tuple[Any, Any, list[str]]:
        try:
            config, command, script_arguments = config_from_args(arguments)
        except AssertionError as error:
            raise ValueError(str(error)) from error
        if config.nproc_per_node < 1:
            raise ValueError(f"nproc_per_node = {config.nproc_per_node}: must be 1 or more")
        if not (should_fork and arguments.module):
            return config, command, script_arguments
        config.start_method = "forkserver"
        return config, run_module, [arguments.training_script, *arguments.training_script_args]

    return read


def reopen(endpoint: str, run_id: str) -> bool:
    """Open the closed rendezvous `run_id` again. Return True if it was closed. Call this before a host joins it.

    torchrun closes a rendezvous permanently when the processes of a host failed too often or are done. The state in
    etcd outlives the hosts, so a restarted host would end at once with RendezvousClosedError. If all work is done, the
    restarted host joins alone, finds no work and exits.

    `endpoint` is HOST:PORT. If etcd does not answer, torchrun reports that later.
    """
    # Imported here because other rendezvous backends and custom images do not need it.
    import etcd  # type: ignore[import-untyped]  # without type hints

    host, _, port = endpoint.partition(":")
    client: Any = etcd.Client(host, int(port or 2379))
    key = f"/torchelastic/p2p/run_{run_id}/rdzv/active_version"
    try:
        found = client.get(key)
        if json.loads(found.value)["status"] != "closed":
            return False
        client.delete(key, prevIndex=found.modifiedIndex)
    except (etcd.EtcdKeyNotFound, etcd.EtcdCompareFailed, etcd.EtcdConnectionFailed):
        return False  # no earlier host, already reopened by another host, or etcd not ready
    return True


if __name__ == "__main__":
    sys.exit(main())
