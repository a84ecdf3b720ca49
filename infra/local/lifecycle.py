"""Starts, checks and stops a local cluster; each call can be repeated after a crash at any moment."""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from infra.local import traces
from infra.local.api import ApiUnavailable, apply, ready_nodes, request
from infra.local.base_objects import base_objects
from infra.local.cgroups import end_cgroups
from infra.local.settings import BUCKET_UID, PROGRAMS, ClusterSettings, cache_folder

START_SECONDS = 120.0
PROJECT = Path(__file__).resolve().parents[2]

Progress = Callable[[str], None]

_launched: list[subprocess.Popen[bytes]] = []
"""Clusters outlive the process that starts them: their handles are kept so that Python does not warn of them."""


def programs_folder() -> Path:
    """The folder in which set-up linked the Kubernetes programs; raises where it did not."""
    folder = cache_folder() / "bin" / "kubernetes"
    missing = [name for name in PROGRAMS if not (folder / name).exists()]
    if missing:
        raise RuntimeError(f"not set up: {', '.join(missing)} missing in {folder}; run `make setup`")
    return folder


@contextmanager
def only_one(name: str) -> Iterator[None]:
    """Hold the lock of cluster `name`: two starts or stops at once wait for each other."""
    folder = cache_folder() / "clusters"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{name}.lock").open("w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def identity(settings: ClusterSettings) -> str | None:
    """The identity of the cluster's data: with another one, nothing of an earlier cluster is there. None: no data."""
    try:
        return (settings.folder / "uid").read_text(encoding="ascii")
    except FileNotFoundError:
        return None


def is_running(settings: ClusterSettings) -> bool:
    """Whether the cluster runs with just these settings, its API server answers and every node is ready."""
    if identity(settings) is None or not traces.processes(settings.folder):
        return False
    try:
        if ClusterSettings.load(settings.folder) != settings:
            return False
        return ready_nodes(settings) >= set(settings.node_names)
    except (ApiUnavailable, OSError, ValueError):
        return False


def start(settings: ClusterSettings, progress: Progress, *, program: str = "infra.local.control_plane") -> None:
    """Make the cluster run: adopt it where it does, heal it where a part died, else start it; data is kept.

    `program` is the module that becomes process 1 of its namespaces.
    """
    with only_one(settings.name):
        if is_running(settings):
            progress("the cluster already runs")
        else:
            _refuse_strangers(settings)
            traces.end_processes(settings.folder)
            end_cgroups(settings.cgroup)
            _make_folders(settings)
            _launch(settings, program)
        # Also where it runs: what started it may have died before it was complete.
        _wait(settings, progress)


def stop(settings: ClusterSettings) -> bool:
    """End the cluster and remove all it has on this machine; False where there was nothing."""
    with only_one(settings.name):
        found = bool(traces.leftovers(settings.folder, settings.cgroup))
        traces.end_processes(settings.folder)
        end_cgroups(settings.cgroup)
        _launched[:] = [process for process in _launched if process.poll() is None]
        if settings.folder.exists():
            shutil.rmtree(settings.folder)
    (cache_folder() / "clusters" / f"{settings.name}.lock").unlink(missing_ok=True)
    return found


def _refuse_strangers(settings: ClusterSettings) -> None:
    if not (settings.folder / "settings.json").exists():
        return
    owner = ClusterSettings.load(settings.folder).owner
    if owner != settings.owner and traces.processes(settings.folder):
        raise RuntimeError(
            f"a cluster named {settings.name!r} of the project in {owner} runs on this machine: "
            f"run `make down` there, or give platform.name another value here"
        )


def _make_folders(settings: ClusterSettings) -> None:
    from infra.local.certificates import make_keys
    from infra.local.image_store import clone_store

    known = identity(settings)
    whole = known is not None and (settings.folder / "settings.json").exists()
    if settings.folder.exists() and not (whole and ClusterSettings.load(settings.folder).owner == settings.owner):
        # A start that was cut off before its data was whole, or what another project's crash left.
        shutil.rmtree(settings.folder)
        known = None
    settings.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if known is None or ClusterSettings.load(settings.folder) != settings:
        make_keys(settings)
    settings.save()
    settings.bucket.mkdir(exist_ok=True)
    os.chown(settings.bucket, BUCKET_UID, BUCKET_UID)
    for index in range(settings.nodes):
        node = settings.node_folder(index)
        node.mkdir(exist_ok=True)
        clone_store(node / "containerd")
    if known is None:
        (settings.folder / "uid").write_text(uuid.uuid4().hex, encoding="ascii")


def _launch(settings: ClusterSettings, program: str) -> None:
    from infra.local.control_plane import UNSHARE

    with listen(settings.port) as door, (settings.folder / "cluster.log").open("ab") as log:
        process = subprocess.Popen(
            [
                *UNSHARE,
                sys.executable,
                "-m",
                program,
                str(settings.folder),
                str(programs_folder()),
                str(door.fileno()),
            ],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=PROJECT,
            env={**os.environ, traces.MARK: str(settings.folder), "PYTHONPATH": str(PROJECT)},
            pass_fds=[door.fileno()],
            start_new_session=True,
        )
    _launched.append(process)


def listen(port: int) -> socket.socket:
    """A socket that listens on 127.0.0.1:`port`; raises with the key to change where the port is taken."""
    door = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        door.bind(("127.0.0.1", port))
        door.listen(128)
    except OSError as error:
        door.close()
        raise RuntimeError(
            f"platform.port {port}: 127.0.0.1:{port} cannot be opened ({error.strerror}); "
            f"free it (`ss -ltnp 'sport = :{port}'` names its owner) or set another port between 1024 and 65535"
        ) from error
    return door


def _wait(settings: ClusterSettings, progress: Progress) -> None:
    begun = time.monotonic()
    pending = base_objects()
    expected = set(settings.node_names)
    problem = "the API server does not answer"
    said: set[str] = set()
    while time.monotonic() - begun < START_SECONDS:
        try:
            request(settings, "GET", "/readyz")
            while pending:
                apply(settings, *pending[0])
                pending.pop(0)
            ready = ready_nodes(settings)
            for node in sorted(ready - said):
                progress(f"node {node} is ready after {time.monotonic() - begun:.1f} s")
            said |= ready
            if ready >= expected:
                request(settings, "GET", "/api/v1/namespaces/default/serviceaccounts/default")
                _forget_other_nodes(settings)
                return
            problem = f"nodes not ready: {', '.join(sorted(expected - ready))}"
        except ApiUnavailable as error:
            problem = str(error)
        if not traces.processes(settings.folder):
            problem = "its processes ended"
            break
        time.sleep(0.2)
    raise RuntimeError(
        f"cluster {settings.name} did not start in {START_SECONDS:.0f} s: {problem}; "
        f"its logs are in {settings.folder} (cluster.log, logs/, node-*/logs/)"
    )


def _forget_other_nodes(settings: ClusterSettings) -> None:
    """Remove what nodes left behind that the cluster had when it had more of them."""
    for node in request(settings, "GET", "/api/v1/nodes")["items"]:
        name = node["metadata"]["name"]
        if name not in settings.node_names:
            request(settings, "DELETE", f"/api/v1/nodes/{name}")
    kept = {settings.node_folder(index) for index in range(settings.nodes)}
    for folder in settings.folder.glob("node-*"):
        if folder not in kept:
            shutil.rmtree(folder)
