"""`python -m trainer RECIPE --flags` trains on one rank. `python -m trainer export` exports a checkpoint."""

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
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
LAUNCHER_POLL_SECONDS = 1.0
"""Seconds between two checks that the launcher still runs."""
PREEMPTION_GRACE_SECONDS = 3.0
"""Seconds after a signal until another thread ends a rank that has nothing to save."""
LAUNCHER_GRACE_SECONDS = 2.0
"""Maximum seconds that a rank waits after it reports a lost rank. The launcher then sees the lost rank's exit first."""


class PreemptionSignal:
    """Record of SIGTERM and Ctrl-C. Each step polls the record. After a signal, the loop finishes the step and saves.

    Before the first poll, there is nothing to save, and loading can take long. A signal at that time ends this rank at
    once. While the main thread runs C code, Python calls no signal handler. Another thread then ends the rank after
    PREEMPTION_GRACE_SECONDS.
    """

    def __init__(self) -> None:
        self._received = self._is_polled = False
        for number in STOP_SIGNALS:
            signal.signal(number, self._receive)
        read_end, write_end = os.pipe()
        os.set_blocking(write_end, False)
        signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
        threading.Thread(target=self._exit_after_grace, args=(read_end,), name="preemption", daemon=True).start()

    def _receive(self, _number: int, _frame: object) -> None:
        first, self._received = not self._received, True
        # A terminal and the launcher may both send a signal: ignore the second signal.
        if first and not self._is_polled:
            raise self._preempted_early()

    def _exit_after_grace(self, read_end: int) -> None:
        while os.read(read_end, 1)[0] not in STOP_SIGNALS:
            pass
        time.sleep(PREEMPTION_GRACE_SECONDS)
        if not self._is_polled:
            exit_process(report_error(self._preempted_early()))

    def follow_launcher(self) -> None:
        """Stop this rank when its launcher is gone. Otherwise, a restarted job would have two copies of the rank."""
        if multiprocessing.parent_process() or "TORCHELASTIC_RUN_ID" in os.environ:
            threading.Thread(
                target=self._stop_with_launcher, args=(os.getppid(),), name="launcher", daemon=True
            ).start()

    def _stop_with_launcher(self, launcher_pid: int) -> None:
        if launcher := multiprocessing.parent_process():
            launcher.join()
        while not launcher and os.getppid() == launcher_pid:
            time.sleep(LAUNCHER_POLL_SECONDS)
        os.kill(os.getpid(), signal.SIGTERM)
        # Print last, because the output may be gone with the launcher.
        print("error: the launcher is gone; this rank stops as if preempted", file=sys.stderr, flush=True)

    def _preempted_early(self) -> PreemptedError:
        return PreemptedError("preempted before the first step; nothing is lost")

    def __call__(self) -> bool:
        self._is_polled = True
        return self._received


def report_error(error: TrainerError) -> int:
    """Print the error that ends this rank, and return the error's exit code."""
    print(f"error: {error} (rank {RANK}, exit code {error.exit_code})", file=sys.stderr, flush=True)
    return error.exit_code


def main() -> int:
    """Run one rank and return the exit code."""
    preempted = PreemptionSignal()
    preempted.follow_launcher()
    # File names may contain bytes that are not valid text.
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]  # a file, not only a text stream
    # A single rank deliberately saves and loads without torch.distributed. The filter affects the whole process.
    warnings.filterwarnings("ignore", message="torch.distributed is disabled", category=UserWarning)
    try:
        if sys.argv[1:2] == ["export"]:
            from trainer.language.hugging_face import export

            export(sys.argv[2:])
            return DONE
        from trainer.config import parse

        config = parse(sys.argv[1:])
        # Import torch only after the flags are valid: the import takes seconds.
        from trainer.loop import train
        from trainer.runtime import start_runtime

        runtime = start_runtime(config)
        with runtime.translate_errors():
            train(config, runtime, preempted)
        runtime.close()
    except TrainerError as error:
        code = report_error(error)
        # The launcher exits with the code of the first failed rank, and sends a signal to the others.
        until = time.monotonic() + (LAUNCHER_GRACE_SECONDS if isinstance(error, PeerGoneError) else 0.0)
        while time.monotonic() < until and not preempted():
            time.sleep(0.02)
        return code
    except Exception:  # the process must end here and not wait for the other ranks
        traceback.print_exc()
        return 1
    return DONE


def exit_process(code: int) -> None:
    """End this process without shutting down the interpreter.

    Connections to lost or hanging ranks would delay the shutdown. A thread of the bucket client can also abort the
    process with SIGABRT during the shutdown: this happened in 3 of 60 runs with a bucket. If a forked rank succeeds,
    return instead: the launcher then gets the rank's result, and multiprocessing also skips the shutdown.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    if code == DONE:
        if multiprocessing.parent_process():
            return
        atexit._run_exitfuncs()
    os._exit(code)


if __name__ == "__main__":
    exit_process(main())
