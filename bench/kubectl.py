"""kubectl for a cluster of the bench."""

from __future__ import annotations

import subprocess

from bench.measure import BenchError
from infra.local import lifecycle
from infra.local.settings import ClusterSettings


def kubectl(settings: ClusterSettings, *words: str) -> None:
    """Run kubectl and wait for its end. Raises BenchError with its error output."""
    command = [str(lifecycle.programs_folder() / "kubectl"), "--kubeconfig", str(settings.kubeconfig), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BenchError(f"`kubectl {' '.join(words)}` failed:\n{done.stderr.strip()}")
