"""Cgroups of a local cluster: their creation for the nodes' kubelets, listing and removal.

Version 1 has one hierarchy per controller. Version 2 has a single hierarchy. Standard library only (see leftovers.py).
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
END_SECONDS = 20.0


def hierarchies() -> list[Path]:
    """Return the root folders of all hierarchies.

    With version 1, a version 2 root can also exist. runc uses both.
    """
    mounts = map(str.split, Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines())
    roots = [Path(mount_point) for _, mount_point, kind, *_ in mounts if kind in ("cgroup", "cgroup2")]
    return [root for root in roots if root == CGROUPS or CGROUPS in root.parents]


def make_cgroup(cgroup: str) -> None:
    """Create `cgroup` in every hierarchy, with every controller that its parents have."""
    for root in hierarchies():
        folder = root
        for part in cgroup.strip("/").split("/"):
            if (folder / "cgroup.controllers").exists():
                controllers = (folder / "cgroup.controllers").read_text(encoding="ascii").split()
                (folder / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in controllers))
            child = folder / part
            child.mkdir(exist_ok=True)
            for setting in ("cpuset.cpus", "cpuset.mems"):
                inherited = folder / setting
                # Version 1 rejects tasks in a cpuset without processors and memory nodes.
                if root != CGROUPS and inherited.exists():
                    (child / setting).write_text(inherited.read_text(encoding="ascii"), encoding="ascii")
            folder = child


def cgroup_folders(cgroup: str) -> list[Path]:
    """Return the cluster's folders in the cgroup hierarchies, deepest first."""
    folders: set[Path] = set()
    for root in hierarchies():
        top = root / cgroup.lstrip("/")
        if top.is_dir():
            folders.add(top)
            folders.update(path for path in top.rglob("*") if path.is_dir())
    return sorted(folders, key=lambda path: len(path.parts), reverse=True)


def end_cgroups(cgroup: str) -> None:
    """Kill all processes in the cluster's cgroups and remove the cgroups. Remove an empty parent cgroup too."""
    empty_cgroups(cgroup)
    for root in hierarchies():
        top = root / "trainyard"
        if top.is_dir() and not any(child.is_dir() for child in top.iterdir()):
            top.rmdir()


def empty_cgroups(cgroup: str) -> None:
    """Kill all processes in `cgroup` and its descendants, then remove these cgroups."""
    deadline = time.monotonic() + END_SECONDS
    while folders := cgroup_folders(cgroup):
        for folder in folders:
            try:
                for pid in (folder / "cgroup.procs").read_text(encoding="ascii").split():
                    # 0 stands for a process of another namespace, but `kill` would signal this process group.
                    if pid != "0":
                        os.kill(int(pid), signal.SIGKILL)
                folder.rmdir()
            except (ProcessLookupError, FileNotFoundError):
                continue  # The process or cgroup is already gone.
            except OSError as error:
                if time.monotonic() > deadline:
                    raise RuntimeError(f"cgroup {folder} cannot be removed: {error}") from error
        time.sleep(0.05)
