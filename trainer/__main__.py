"""`python -m trainer RECIPE --flags`: parse, take the device, train, leave with the exit code of how it ended."""

from __future__ import annotations

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


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    if code != DONE:
        # Not sys.exit: connections to ranks that are gone or hang would hold the process up.
        os._exit(code)
