"""`python -m trainer.launch ...` is torchrun, but ends with the exit code of the process that failed first.

torchrun ends with 1 whatever its processes ended with, so that nobody outside could tell a preempted run from a
diverged one. It takes torchrun's own flags and environment variables.
"""

from __future__ import annotations

import os
import sys

from trainer.exit_codes import DONE, HANG, PREEMPTED, STORAGE_ERROR

RETRYABLE = frozenset({HANG, STORAGE_ERROR, PREEMPTED})
"""Exit codes that mean "run it again"."""

SIGNAL_BASE = 128
"""What a shell adds to a signal's number to make an exit code of it."""


def main() -> int:
    """Run this host's processes; returns the exit code.

    $TRAINYARD_RETRYABLE_OFFSET is added to codes that mean "run it again", for operators that retry high codes only.
    """
    code = _run()
    return code + int(os.environ.get("TRAINYARD_RETRYABLE_OFFSET", "0")) if code in RETRYABLE else code


def _run() -> int:
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.run import parse_args, run

    try:
        run(parse_args(sys.argv[1:]))  # type: ignore[no-untyped-call]  # torch has no types for it
    except ChildFailedError as error:
        rank, failure = error.get_first_failure()
        code = failure.exitcode
        reason = f"exit code {code}" if code > 0 else f"signal {-code}"
        print(f"error: rank {rank} ended with {reason}", file=sys.stderr, flush=True)
        return code if code > 0 else SIGNAL_BASE - code
    except SignalException as told:
        # The processes were told, too, and had their time to save.
        print(f"error: {told}", file=sys.stderr, flush=True)
        return PREEMPTED
    return DONE


if __name__ == "__main__":
    sys.exit(main())
