"""NcclEnvironmentScript: a host folder with a script that sets NCCL's environment. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class NcclEnvironmentScript:
    """Folder of libraries on the host. Pods mount a claim, because they may not mount host paths."""

    claim: str
    """Name of the claim in the jobs' namespace."""
    folder: str
    """Folder on the host. A pod does not start before the folder exists."""
    mount: str
    """Read-only mount path in pods."""
    script: str
    """Shell script that sets the environment before programs start."""
