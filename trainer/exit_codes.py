"""The trainer's exit codes, and the errors that end it with each: what a job's failure policy decides by."""

from __future__ import annotations

DONE = 0
"""Trained to the end."""
DIVERGED = 65
"""The loss or a weight is not a number any more: the same run again would end the same."""
DATA_ERROR = 66
"""Data or checkpoints are missing or broken: someone must look."""
SLOW_LINK = 69
"""A link between hosts carries less than the job asks for: the same hosts again would end the same."""
HANG = 70
"""A rank did not answer within the time-out: run it again."""
RESTARTS_USED = 71
"""A host was lost, or its ranks were told to leave, and the job has no restart left."""
STORAGE_ERROR = 74
"""The disk or bucket is full, read-only or failing."""
PREEMPTED = 75
"""Told to leave, or another rank left: the work is saved as far as it went, run it again."""
BAD_CONFIGURATION = 78
"""Flags that cannot be obeyed: the same run again would end the same."""


class TrainerError(Exception):
    """An end of training that has an exit code; its text is written for the user."""

    exit_code = 1


class DivergedError(TrainerError):
    """The loss became NaN or infinite."""

    exit_code = DIVERGED


def diverged(step: int, learning_rate: float) -> DivergedError:
    """The error for a run whose loss or weights are no numbers at this step, or were none before it."""
    return DivergedError(
        f"the loss or a weight is not a number any more, at or before step {step}; allowed is a finite loss: lower "
        f"learning_rate (now {learning_rate:g})"
    )


class DataError(TrainerError):
    """Training data or a checkpoint cannot be used."""

    exit_code = DATA_ERROR


class HangError(TrainerError):
    """Another rank did not answer in time."""

    exit_code = HANG


class StorageError(TrainerError):
    """Files cannot be written or read."""

    exit_code = STORAGE_ERROR


class PreemptedError(TrainerError):
    """This rank or another one had to leave."""

    exit_code = PREEMPTED


class PeerGoneError(PreemptedError):
    """Another rank is gone without a word, and this one leaves because of that."""


class ConfigurationError(TrainerError, ValueError):
    """A setting is wrong, or two of them contradict each other."""

    exit_code = BAD_CONFIGURATION
