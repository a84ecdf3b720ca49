"""Processes, cgroups and other leftovers of a local cluster on this machine.

Standard library only.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

CLUSTER_VARIABLE = "TRAINYARD_CLUSTER"
"""Environment variable with the cluster's folder, set in each process of a cluster outside of containers."""
NODE_VARIABLE = "TRAINYARD_NODE_INDEX"
"""Environment variable with the node's index, set in each process of a node outside of containers."""
END_SECONDS = 20.0
"""Seconds that killed processes may take to end."""
CGROUPS = Path("/sys/fs/cgroup")


def processes(folder: Path) -> list[int]:
    """Return the ids of the processes of the cluster in `folder`, except those in containers."""
    return [pid for pid, cluster_folder in marked_processes() if cluster_folder == str(folder)]


def marked_processes() -> list[tuple[int, str]]:
    """Return the id and the cluster's folder of each process of all local clusters, except those in containers."""
    marked = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            folder = environment_value(int(entry.name), CLUSTER_VARIABLE)
            if folder is not None:
                marked.append((int(entry.name), folder))
    return marked


def environment_value(pid: int, name: str) -> str | None:
    """Return the value of environment variable `name` in process `pid`.

    Return None if the variable is unset, the process has ended, or this user may not read its environment.
    """
    try:
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return None
    values = [value.partition(b"=")[2] for value in variables if value.startswith(name.encode() + b"=")]
    return values[0].decode() if values else None


def is_namespace_init(pid: int) -> bool:
    """Return True if `pid` is process 1 of a process namespace inside this one."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except OSError:
        return False
    ids = [line.split()[1:] for line in status.splitlines() if line.startswith("NSpid:")]
    return bool(ids) and len(ids[0]) > 1 and ids[0][-1] == "1"


def node_process(folder: Path, index: int) -> int | None:
    """Return process 1 of node `index`, by its id outside the node, or None if the node does not run."""
    for pid in processes(folder):
        if environment_value(pid, NODE_VARIABLE) == str(index) and is_namespace_init(pid):
            return pid
    return None


def node_program(folder: Path, index: int, name: str) -> int | None:
    """Return the process id of a program of node `index`, or None. A process that SIGSTOP has stopped counts too."""
    for pid in processes(folder):
        try:
            has_name = Path(f"/proc/{pid}/comm").read_text(encoding="utf-8").strip() == name
        except OSError:
            continue  # The process ended during this scan.
        if has_name and environment_value(pid, NODE_VARIABLE) == str(index):
            return pid
    return None


def end_processes(folder: Path) -> None:
    """Kill every process of the cluster. Containers, mounts and interfaces end with the namespaces."""
    deadline = time.monotonic() + END_SECONDS
    while pids := processes(folder):
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue  # The process ended with its namespace.
        if time.monotonic() > deadline:
            raise RuntimeError(f"processes {pids} of the cluster in {folder} do not end; see /proc/<id>/stack")
        time.sleep(0.05)


def hierarchies() -> list[Path]:
    """Return the root folders of all cgroup hierarchies.

    A machine with cgroups v1 can also have a v2 hierarchy. runc uses both.
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
                    # 0 stands for a process of another namespace, but `kill` with 0 would signal this process group.
                    if pid != "0":
                        os.kill(int(pid), signal.SIGKILL)
                folder.rmdir()
            except (ProcessLookupError, FileNotFoundError):
                continue  # The process or cgroup is already gone.
            except OSError as error:
                if time.monotonic() > deadline:
                    raise RuntimeError(f"cgroup {folder} cannot be removed: {error}") from error
        time.sleep(0.05)


def find(folder: Path, cgroup: str) -> list[str]:
    """Return the cluster's processes, cgroups, mounts and folder, one line each; empty after a complete stop."""
    leftovers = [f"process {pid}" for pid in processes(folder)]
    leftovers += [f"cgroup {path}" for path in cgroup_folders(cgroup)]
    mounts = Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()
    leftovers += [f"mount {line.split()[1]}" for line in mounts if line.split()[1].startswith(str(folder))]
    if folder.exists():
        leftovers.append(f"folder {folder}")
    return leftovers
