"""HostProfile: a folder on a node whose script says how the libraries between GPUs are set there. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class HostProfile:
    """A folder of libraries on the host, which pods see through a claim: one on the host itself is refused to them."""

    claim: str
    """Name of the claim in the jobs' namespace."""
    folder: str
    """The folder on the host; a pod does not start before it is there."""
    mount: str
    """Where pods have it, for reading alone."""
    script: str
    """Shell script that sets the environment, which programs are started from."""
