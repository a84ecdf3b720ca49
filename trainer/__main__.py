"""`python -m trainer RECIPE --flags`: parse, take the device, train, leave with the exit code of how it ended."""

from __future__ import annotations

import atexit
import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
import warnings

from trainer.exit_codes import DONE, PeerGoneError, PreemptedError, TrainerError

RANK = os.environ.get("RANK", "0")
TOLD = (signal.SIGTERM, signal.SIGINT)
LOOK = 1.0
"""Seconds from one look for a launcher to the next, where nothing says that it is gone."""
PATIENCE = 3.0
"""Seconds in which a rank that has nothing to save may tidy up."""
COURTESY = 2.0
"""Seconds, at most, for which a rank lets its launcher see first that another one is gone."""


class LeaveSignal:
    """Remembers SIGTERM and Ctrl-C: the loop asks between steps, so that the current one is finished and saved.

    Until the loop asks for the first time nothing has been done that could be lost, and what is being loaded can take
    long: till then the signal ends this rank. Where it waits outside of Python no handler runs, and a thread ends it.
    """

    def __init__(self) -> None:
        self._received = self._asked = False
        for number in TOLD:
            signal.signal(number, self._receive)
        told, tell = os.pipe()
        os.set_blocking(tell, False)
        signal.set_wakeup_fd(tell, warn_on_full_buffer=False)
        threading.Thread(target=self._end_in_time, args=(told,), name="leave", daemon=True).start()

    def _receive(self, _number: int, _frame: object) -> None:
        first, self._received = not self._received, True
        # Told again, as by a terminal and then by the launcher, it is on its way out already.
        if first and not self._asked:
            raise self._nothing_lost()

    def _end_in_time(self, told: int) -> None:
        while os.read(told, 1)[0] not in TOLD:
            pass
        time.sleep(PATIENCE)
        if not self._asked:
            leave(say(self._nothing_lost()))

    def follow_launcher(self) -> None:
        """Leave when the launcher is gone: nobody would restart this rank, and who starts the job again has two."""
        if multiprocessing.parent_process() or "TORCHELASTIC_RUN_ID" in os.environ:
            threading.Thread(target=self._leave_with_it, args=(os.getppid(),), name="launcher", daemon=True).start()

    def _leave_with_it(self, started_by: int) -> None:
        if forked_for := multiprocessing.parent_process():
            forked_for.join()
        while not forked_for and os.getppid() == started_by:
            time.sleep(LOOK)
        os.kill(os.getpid(), signal.SIGTERM)
        # Last: what it prints to may be gone as well.
        print("error: the launcher is gone; leaving as if told to", file=sys.stderr, flush=True)

    def _nothing_lost(self) -> PreemptedError:
        return PreemptedError("told to leave before the first step; nothing is lost")

    def __call__(self) -> bool:
        self._asked = True
        return self._received


def say(error: TrainerError) -> int:
    """Say what ends this rank; returns its exit code."""
    print(f"error: {error} (rank {RANK}, exit code {error.exit_code})", file=sys.stderr, flush=True)
    return error.exit_code


def main() -> int:
    """Run one rank; returns the exit code."""
    told_to_leave = LeaveSignal()
    told_to_leave.follow_launcher()
    # Names of files need not be text.
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]  # a file, not only a text stream
    # A single rank saves and loads without torch.distributed on purpose. The program sets this, not a library module.
    warnings.filterwarnings("ignore", message="torch.distributed is disabled", category=UserWarning)
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
        code = say(error)
        # A launcher ends with the code of the rank that it sees first, and then tells the others.
        until = time.monotonic() + (COURTESY if isinstance(error, PeerGoneError) else 0.0)
        while time.monotonic() < until and not told_to_leave():
            time.sleep(0.02)
        return code
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
