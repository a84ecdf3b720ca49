"""Folders of a job in its bucket.

Objects that live equally long share a prefix, because clouds expire objects by prefix. One rule for `checkpoints/` or
`profiles/` covers all jobs, past and future.
"""

from __future__ import annotations

from trainer.setting_rules import CHECKPOINTS, PROFILES
from trainer.storage import Folder


def checkpoints_folder(bucket: Folder, job: str) -> Folder:
    """Return the folder that holds one folder per saved step."""
    return bucket.child(CHECKPOINTS).child(job)


def profiles_folder(bucket: Folder, job: str) -> Folder:
    """Return the folder that holds one folder per process."""
    return bucket.child(PROFILES).child(job)
