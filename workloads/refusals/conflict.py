"""One thing that is wrong about a job, as all rules of jobs say it. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Conflict:
    """One thing that is wrong about a job."""

    key: str
    """Key of the job that has to change, with those below it after dots."""
    message: str
    """What is allowed and what to do."""
    value: object = None
    """What is there; None where it is not to be shown."""
