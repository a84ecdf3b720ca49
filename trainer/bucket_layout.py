"""Where a job's files are in its bucket.

What is kept for as long is under one name at the top, for clouds delete by the beginnings of names: a rule for
`checkpoints/` or `profiles/` holds for every job, those to come and those that are gone.
"""

from __future__ import annotations

from trainer.setting_rules import CHECKPOINTS, PROFILES
from trainer.storage import Folder


def checkpoints_of(bucket: Folder, job: str) -> Folder:
    """A folder for each step in it."""
    return bucket.child(CHECKPOINTS).child(job)


def profiles_of(bucket: Folder, job: str) -> Folder:
    """A folder for each process in it."""
    return bucket.child(PROFILES).child(job)
