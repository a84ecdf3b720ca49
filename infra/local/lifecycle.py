"""Start, stop and health checks of a local cluster, and checks of this machine. After a crash, all can run again."""

from __future__ import annotations

import fcntl
import math
import os
import platform
import shutil
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import fields
from pathlib import Path
from typing import Any

from infra.local import leftovers
from infra.local.api import ApiUnavailable, apply, base_objects, ready_nodes, request
from infra.local.key_files import has_keys, write_kubeconfigs
from infra.local.leftovers import end_cgroups
from infra.local.settings import (
    BUCKET_UID,
    ID_FILE,
    PROGRAMS,
    SETTINGS_FILE,
    ClusterSettings,
    built_programs,
    cache_folder,
    clusters_folder,
)
from infra.make_command import make_command, sudo_command
from infra.project import CHECKOUT

START_SECONDS = 120.0
"""Maximum seconds of a cluster's start."""
PORTS = range(16443, 16743)
"""Ports for clusters without a port in their settings.

Linux uses higher ports for outgoing connections (32768 and above).
"""

Progress = Callable[[str], None]

_launched: list[subprocess.Popen[bytes]] = []
"""Processes of started clusters. Without these references, Python would warn that each process still runs."""


def programs_folder() -> Path:
    """Return the folder of the Kubernetes programs. Raises RuntimeError if set-up has not linked all of them."""
    folder = built_programs() / "kubernetes"
    missing = [name for name in PROGRAMS if not (folder / name).exists()]
    if missing:
        raise RuntimeError(f"{folder}: {', '.join(missing)} missing; run {make_command('setup', STACK='')}")
    return folder


@contextmanager
def locked(settings: ClusterSettings) -> Iterator[None]:
    """Hold the cluster's lock. A second start or stop waits for the first."""
    clusters_folder().mkdir(parents=True, exist_ok=True)
    while True:
        with settings.lock_file.open("w", encoding="ascii") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if _is_open_file(lock.fileno(), settings.lock_file):
                yield
                return
            # A stop removed the file while this process waited for the lock, so try again.


def _is_open_file(descriptor: int, path: Path) -> bool:
    """Return True if the path still refers to the open file."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def identity(settings: ClusterSettings) -> str | None:
    """Return the id of the cluster's data, or None if there is no data. A new id means that all data is new."""
    try:
        return (settings.folder / ID_FILE).read_text(encoding="ascii") or None
    except (FileNotFoundError, UnicodeDecodeError):
        return None


def other_cache_problem(settings: ClusterSettings, state: Mapping[str, Any]) -> str:
    """Return an error if the cluster in a stack's `state` is in another cache folder, else an empty string."""
    folder = Path(state.get("bucket_path") or settings.bucket).parent
    if folder == settings.folder or folder.name != settings.folder.name or not folder.exists():
        return ""
    base = folder.parents[2]
    return (
        f"XDG_CACHE_HOME = {cache_folder().parent}: the cluster of stack {settings.stack} is in {folder}; run the "
        f"command with XDG_CACHE_HOME={base}; to use another folder, first run "
        f"{make_command('down', STACK=settings.stack)} with XDG_CACHE_HOME={base}"
    )


def is_running(settings: ClusterSettings) -> bool:
    """Return True if the cluster runs with these settings and keys, and its API server and nodes are ready."""
    if identity(settings) is None or not leftovers.processes(settings.folder):
        return False
    if saved_settings(settings.folder) != settings or not has_keys(settings):
        return False
    try:
        return ready_nodes(settings) >= set(settings.node_names)
    except (ApiUnavailable, OSError, ValueError):
        return False


def saved_settings(folder: Path) -> ClusterSettings | None:
    """Return the settings of the cluster in a folder, or None if they are missing or damaged."""
    try:
        return ClusterSettings.load(folder)
    except (OSError, ValueError):
        return None


def changed_keys(settings: ClusterSettings) -> str:
    """Return the keys of the settings that differ from the running cluster's; empty if the cluster does not run."""
    before = saved_settings(settings.folder)
    if before is None or not leftovers.processes(settings.folder):
        return ""
    names = [each.name for each in fields(settings) if getattr(before, each.name) != getattr(settings, each.name)]
    return ", ".join(f"platform.{name}" for name in names)


def saved_clusters() -> list[ClusterSettings]:
    """Return the settings of all clusters of this machine, running or not."""
    folders = sorted(clusters_folder().glob("*/")) if clusters_folder().exists() else []
    return [settings for folder in folders if (settings := saved_settings(folder)) and settings.folder == folder]


def abandoned_clusters() -> list[ClusterSettings]:
    """Return the clusters of this machine whose project folder no longer exists."""
    return [
        settings
        for settings in saved_clusters()
        if Path(settings.owner).is_absolute() and not Path(settings.owner).exists()
    ]


def start(
    settings: ClusterSettings,
    progress: Progress,
    *,
    program: str = "infra.local.control_plane",
    check: Callable[[], None] = lambda: None,
) -> None:
    """Start the cluster, or keep it if it already runs. If a part died, restart everything and keep the data.

    `program` is the module that runs as process 1 of the cluster's namespaces. `check` raises an exception if the
    caller no longer waits for the cluster, so that no further process starts.
    """
    with locked(settings):
        if is_running(settings):
            progress("the cluster already runs")
            write_kubeconfigs(settings)
        else:
            if keys := changed_keys(settings):
                progress(f"{keys} changed: restarting the cluster with its data; running jobs restart in it")
            leftovers.end_processes(settings.folder)
            end_cgroups(settings.cgroup)
            check()
            with _listen(settings) as listener:
                _make_folders(settings, listener.getsockname()[1])
                check()
                _launch(settings, program, listener)
        # Wait even if the cluster runs: an earlier `start` may have died before all nodes were ready.
        _wait(settings, progress, check)


def stop(settings: ClusterSettings) -> bool:
    """Stop the cluster and remove all its leftovers from this machine.

    Return False if there were none, or only the lock file.
    """
    if not find_leftovers(settings):
        return False
    with locked(settings):
        had_leftovers = bool(leftovers.find(settings.folder, settings.cgroup))
        leftovers.end_processes(settings.folder)
        end_cgroups(settings.cgroup)
        _launched[:] = [process for process in _launched if process.poll() is None]
        _remove_data(settings)
        settings.lock_file.unlink()
    return had_leftovers


def find_leftovers(settings: ClusterSettings) -> list[str]:
    """Return all leftovers of the cluster on this machine: processes, cgroups, mounts, folder and lock file."""
    lines = leftovers.find(settings.folder, settings.cgroup)
    return [*lines, f"lock {settings.lock_file}"] if settings.lock_file.exists() else lines


def _remove_data(settings: ClusterSettings) -> None:
    """Remove the folder, its id first and its settings last.

    After an interrupted removal, the next start removes the rest of the data, and `down --orphan` finds the cluster.
    """
    (settings.folder / ID_FILE).unlink(missing_ok=True)
    if not settings.folder.exists():
        return
    for path in settings.folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path.name != SETTINGS_FILE:
            path.unlink()
    shutil.rmtree(settings.folder)


def _make_folders(settings: ClusterSettings, port: int) -> None:
    """Create the cluster's folders, keys and bucket, and clone the image store for each node."""
    from infra.local.certificates import make_keys
    from infra.local.image_store import clone_store

    uid = identity(settings)
    if uid is None:
        # Remove the data of an interrupted start or removal, if there is any.
        _remove_data(settings)
    settings.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    (settings.folder / "port").write_text(str(port), encoding="ascii")
    if saved_settings(settings.folder) != settings or not has_keys(settings):
        make_keys(settings)
    else:
        write_kubeconfigs(settings)
    settings.save()
    settings.bucket.mkdir(exist_ok=True)
    os.chown(settings.bucket, BUCKET_UID, BUCKET_UID)
    for index in range(settings.nodes):
        node = settings.node_folder(index)
        node.mkdir(exist_ok=True)
        clone_store(node / "containerd")
    if uid is None:
        (settings.folder / ID_FILE).write_text(uuid.uuid4().hex, encoding="ascii")


def _launch(settings: ClusterSettings, program: str, listener: socket.socket) -> None:
    from infra.local.control_plane import UNSHARE

    # Drop the variables of HTTP proxies, because the cluster's network cannot reach a proxy of this machine.
    environment = {key: value for key, value in os.environ.items() if not key.lower().endswith("_proxy")}
    with (settings.folder / "cluster.log").open("ab") as log:
        process = subprocess.Popen(
            [
                *UNSHARE,
                sys.executable,
                "-m",
                program,
                str(settings.folder),
                str(programs_folder()),
                str(listener.fileno()),
            ],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=CHECKOUT,
            env={**environment, leftovers.CLUSTER_VARIABLE: str(settings.folder), "PYTHONPATH": str(CHECKOUT)},
            pass_fds=[listener.fileno()],
            start_new_session=True,
        )
    _launched.append(process)


def _listen(settings: ClusterSettings) -> socket.socket:
    """Open the configured port, else the port of the last start, else the first free port."""
    if settings.port:
        return listen(settings.port)
    last_port = settings.last_port
    for port in (*((last_port,) if last_port else ()), *PORTS):
        with suppress(RuntimeError):
            return listen(port)
    raise RuntimeError(
        f"platform.port: no port from {PORTS.start} to {PORTS.stop - 1} is free on 127.0.0.1; "
        "remove clusters (`make down STACK=NAME` in a checkout, `trainyard down --stack NAME` in a project), or set "
        "platform.port to a free port between 1024 and 65535"
    )


def listen(port: int) -> socket.socket:
    """Return a socket that listens on 127.0.0.1:`port`.

    If the port is in use, raises RuntimeError with the settings key to change.
    """
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(("127.0.0.1", port))
        listener.listen(128)
    except OSError as error:
        listener.close()
        raise RuntimeError(
            f"platform.port = {port}: cannot be opened on 127.0.0.1 ({error.strerror}): {_port_owner(port)}; "
            "remove platform.port to use any free port, or set another port between 1024 and 65535"
        ) from error
    return listener


def _down_command(other: ClusterSettings) -> str:
    """Return the command that removes a cluster, to run in `other.owner`. Only a checkout has a Makefile."""
    has_makefile = (Path(other.owner) / "Makefile").exists()
    return f"`make down STACK={other.stack}`" if has_makefile else f"`trainyard down --stack {other.stack}`"


def _port_owner(port: int) -> str:
    """Return a clause about the port's owner: another cluster's stack, or else a command that finds the owner."""
    for folder in sorted({cluster_folder for _, cluster_folder in leftovers.marked_processes()}):
        other = saved_settings(Path(folder))
        if other and other.api_port == port:
            return f"the cluster of stack {other.stack} in {other.owner} uses it ({_down_command(other)} there)"
    return f"`ss -ltnp 'sport = :{port}'` shows its owner"


def _wait(settings: ClusterSettings, progress: Progress, check: Callable[[], None]) -> None:
    """Create the base objects, and wait until the API server and all nodes are ready."""
    started = time.monotonic()
    pending = base_objects()
    expected = set(settings.node_names)
    problem = "the API server does not answer"
    reported: set[str] = set()
    while time.monotonic() - started < START_SECONDS:
        check()
        try:
            request(settings, "GET", "/readyz")
            while pending:
                apply(settings, *pending[0])
                pending.pop(0)
            ready = ready_nodes(settings)
            for node in sorted(ready - reported):
                progress(f"node {node} is ready after {time.monotonic() - started:.1f} s")
            reported |= ready
            if ready >= expected:
                request(settings, "GET", "/api/v1/namespaces/default/serviceaccounts/default")
                _remove_surplus_nodes(settings)
                return
            problem = f"nodes not ready: {', '.join(sorted(expected - ready))}"
        except ApiUnavailable as error:
            problem = str(error)
        if not leftovers.processes(settings.folder):
            problem = "its processes ended"
            break
        time.sleep(0.2)
    seconds = time.monotonic() - started
    raise RuntimeError(
        f"cluster {settings.name} of stack {settings.stack} did not start in {seconds:.0f} s: {problem}; "
        f"its logs are in {settings.folder} (cluster.log, logs/, node-*/logs/)"
    )


def _remove_surplus_nodes(settings: ClusterSettings) -> None:
    """Remove the nodes and folders that a smaller cluster no longer has."""
    for node in request(settings, "GET", "/api/v1/nodes")["items"]:
        name = node["metadata"]["name"]
        if name not in settings.node_names:
            request(settings, "DELETE", f"/api/v1/nodes/{name}")
    node_folders = {settings.node_folder(index) for index in range(settings.nodes)}
    for folder in settings.folder.glob("node-*"):
        if folder not in node_folders:
            shutil.rmtree(folder)


SUPPORTED_ARCHITECTURES = ("x86_64", "aarch64")
RUN_BYTES = 2_000_000_000
"""Free disk space that a cluster needs after its images exist."""


def check_machine(settings: ClusterSettings, set_up_bytes: int = 0) -> list[str]:
    """Return the reasons why this machine cannot run the cluster, one line each.

    `set_up_bytes` is the free disk space that the missing steps of set-up need.
    """
    if platform.system() != "Linux" or platform.machine() not in SUPPORTED_ARCHITECTURES:
        return [
            f"platform.kind = local: this machine is {platform.system()} on {platform.machine()}; the local cluster "
            f"needs Linux on {' or '.join(SUPPORTED_ARCHITECTURES)}; use platform.kind kubeconfig with an existing "
            "cluster"
        ]
    problems = []
    if os.geteuid() != 0:
        problems.append(
            f"platform.kind = local: user {os.geteuid()} cannot create namespaces and cgroups; run as root "
            f"({sudo_command('up')}), or use platform.kind kubeconfig with an existing cluster"
        )
    return [*problems, *disk_problems(max(RUN_BYTES, set_up_bytes)), *_port_problems(settings)]


def disk_problems(needed: int) -> list[str]:
    """Return a list with the reason why the cache folder cannot store `needed` more bytes; empty if it can."""
    folder = cache_folder()
    while not folder.exists():
        folder = folder.parent
    if not os.access(folder, os.W_OK | os.X_OK):
        return [f"disk: {folder} is not writable; make it writable, or set XDG_CACHE_HOME to a folder that is"]
    free = shutil.disk_usage(folder).free
    if free >= needed:
        return []
    return [
        f"disk: {free / 1e9:.1f} GB are free in {folder}, {math.ceil(needed / 1e9)} GB are needed; delete files, "
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
