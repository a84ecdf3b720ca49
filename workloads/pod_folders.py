"""Writable folders of a job's pods. Pure."""

BUCKET_PATH = "/bucket"
"""Mount path of a bucket that is a volume."""
SCRATCH_PATH = "/tmp"
SHARED_MEMORY_PATH = "/dev/shm"
OF_A_HOST = (SCRATCH_PATH, SHARED_MEMORY_PATH)
"""Writable folders of each pod. The rest of its root file system is read-only in every image."""


def is_below(path: str, *folders: str) -> bool:
    """Return True if a path is one of the folders or below one."""
    return any(path == folder or path.startswith(f"{folder}/") for folder in folders)
