"""Folders of a job's pods that can be written. Pure."""

BUCKET_PATH = "/bucket"
"""Where pods have a bucket that is a volume."""
SCRATCH_PATH = "/tmp"
SHARED_MEMORY_PATH = "/dev/shm"
OF_A_HOST = (SCRATCH_PATH, SHARED_MEMORY_PATH)
"""What each pod has for itself; all else of its root file system is read-only, whatever the image."""


def is_below(path: str, *folders: str) -> bool:
    """Whether a path is one of the folders or in one."""
    return any(path == folder or path.startswith(f"{folder}/") for folder in folders)
