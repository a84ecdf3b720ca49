"""Checks of this machine before a local cluster starts. Each error contains a remedy."""

from __future__ import annotations

import os
import platform
import shutil

from infra.local import leftovers
from infra.local.lifecycle import listen
from infra.local.settings import ClusterSettings, cache_folder
from infra.make_command import make_command

MACHINES = ("x86_64", "aarch64")
SET_UP_BYTES = 30_000_000_000
"""Peak of the free disk space that set-up needs, for Go and Python caches and the build of the trainer image."""
RUN_BYTES = 2_000_000_000
"""Free disk space that a cluster needs once its images exist."""


def check_machine(settings: ClusterSettings) -> list[str]:
    """Return the reasons for which this machine cannot run the cluster, one line each."""
    if platform.system() != "Linux" or platform.machine() not in MACHINES:
        return [
            f"platform.kind local: this machine is {platform.system()} on {platform.machine()}; the local cluster "
            f"needs Linux on {' or '.join(MACHINES)}: use platform.kind kubeconfig with a cluster that you have"
        ]
    found = []
    if os.geteuid() != 0:
        found.append(
            f"platform.kind local: user {os.geteuid()} cannot make namespaces and cgroups; run as root "
            f"(`sudo {make_command('up').strip('`')}`), or use platform.kind kubeconfig with a cluster that you have"
        )
    found += _disk_problems()
    found += _port_problems(settings)
    return found


def _disk_problems() -> list[str]:
    folder = cache_folder()
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    needed = RUN_BYTES if (cache_folder() / "images" / "references.json").exists() else SET_UP_BYTES
    if free >= needed:
        return []
    return [
        f"disk: {free / 1e9:.1f} GB are free in {folder}, {needed / 1e9:.0f} GB are needed: make room, "
        "or set XDG_CACHE_HOME to a folder on a larger disk"
    ]


def _port_problems(settings: ClusterSettings) -> list[str]:
    if not settings.port or (leftovers.processes(settings.folder) and settings.last_port == settings.port):
        return []
    try:
        listen(settings.port).close()
    except RuntimeError as error:
        return [str(error)]
    return []
