"""Exit codes of the trainer and the errors that cause them. A job's failure policy depends on these codes."""

from __future__ import annotations

DONE = 0
"""The training is complete."""
DIVERGED = 65
"""The loss or a weight is no longer finite. The same run would end the same way."""
DATA_ERROR = 66
"""Data or checkpoints are missing or broken. The same run would end the same way."""
SLOW_LINK = 69
"""A link between hosts is slower than the job requires. The same hosts would fail again."""
HANG = 70
"""A rank made no progress within the time-out. Run the job again."""
RESTARTS_USED = 71
"""A host was lost or preempted, and the job has no restarts left."""
STORAGE_ERROR = 74
"""The disk or bucket is full, read-only or failing."""
PREEMPTED = 75
"""This rank was preempted, or another rank is gone. Run the job again; it resumes from its newest checkpoint."""
BAD_CONFIGURATION = 78
"""A setting is invalid, or a later run of the same job has replaced this run. Do not restart this run."""


class TrainerError(Exception):
    """An error with an exit code and a message for the user."""

    exit_code = 1


class DivergedError(TrainerError):
    """The loss or a weight is no longer finite."""

    exit_code = DIVERGED


def diverged(step: int, learning_rate: float) -> DivergedError:
    """Return the error for a loss or a weight that is not finite at or before this step."""
    return DivergedError(
        f"the loss or a weight is no longer finite, at or before step {step}; both must stay finite: lower "
        f"learning_rate (now {learning_rate:g})"
    )


class DataError(TrainerError):
    """Training data or a checkpoint is not usable."""

    exit_code = DATA_ERROR


class HangError(TrainerError):
    """Another rank did not answer in time."""

    exit_code = HANG


class StorageError(TrainerError):
    """A file could not be written or read."""

    exit_code = STORAGE_ERROR


class PreemptedError(TrainerError):
    """This rank or another one was preempted."""

    exit_code = PREEMPTED


class PeerGoneError(PreemptedError):
    """Another rank ended without notice, so this rank stops."""


class ConfigurationError(TrainerError, ValueError):
    """A setting is invalid, two settings contradict each other, or a later run of the job has replaced this run."""

    exit_code = BAD_CONFIGURATION
