"""`python -m trainer RECIPE --flags`: parse, take the device, train, leave with the exit code of how it ended."""

from __future__ import annotations

import atexit
import multiprocessing
import os
import signal
import sys
import traceback

from trainer.exit_codes import DONE, TrainerError


class LeaveSignal:
    """Remembers SIGTERM: the loop asks between steps, so that the current one is finished and saved."""

    def __init__(self) -> None:
        self._received = False
        signal.signal(signal.SIGTERM, self._receive)

    def _receive(self, _number: int, _frame: object) -> None:
        self._received = True

    def __call__(self) -> bool:
        return self._received


def main() -> int:
    """Run one rank; returns the exit code."""
    told_to_leave = LeaveSignal()
    try:
        from trainer.config import parse

        config = parse(sys.argv[1:])
        # Imported after the flags are known to be good: torch takes seconds.
        from trainer.loop import train
        from trainer.runtime import start_runtime

        runtime = start_runtime(config)
        with runtime.watching():
            train(config, runtime, told_to_leave)
        runtime.close()
    except TrainerError as error:
        rank = os.environ.get("RANK", "0")
        print(f"error: {error} (rank {rank}, exit code {error.exit_code})", file=sys.stderr, flush=True)
        return error.exit_code
    except Exception:  # the process must end here and not wait for the other ranks
        traceback.print_exc()
        return 1
    return DONE


def leave(code: int) -> None:
    """End this process without taking the interpreter apart.

    Connections to ranks that are gone or hang would hold it up, and a thread of a bucket's client that comes back to an
    interpreter that is half gone ends the process with SIGABRT: so did 3 of 60 that had used a bucket. A rank that its
    launcher forked comes back where it is done: the launcher waits for that, and then ends it in this way, too.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    if code == DONE:
        if multiprocessing.parent_process():
            return
        atexit._run_exitfuncs()
    os._exit(code)


if __name__ == "__main__":
    leave(main())
