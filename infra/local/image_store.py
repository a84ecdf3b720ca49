"""Store of the images that nodes start with, and builder of operators' images.

The store is a containerd root folder. Set-up imports each image once. Each node gets a clone of hard links. Image
layers never change, so the clones share them and need little disk space.
"""

from __future__ import annotations

import fcntl
import hashlib
import io
import json
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from infra.local.control_plane import UNSHARE
from infra.local.image_builder import add_file, write_json
from infra.local.settings import (
    CONTAINERD_CONFIG_VERSION,
    CONTAINERD_SOCKET,
    RUNTIME_PROGRAMS,
    built_programs,
    cache_folder,
)
from infra.make_command import make_command
from infra.project import CHECKOUT

DATABASES = ("io.containerd.metadata.v1.bolt/meta.db", "io.containerd.snapshotter.v1.overlayfs/metadata.db")
"""Files that containerd changes in place. Each clone gets its own copies."""
INGEST_FOLDER = "io.containerd.content.v1.content/ingest"
"""Folder with files of interrupted imports. containerd changes these files in place, so clones must not share them."""

SNAPSHOTS_FOLDER = "io.containerd.snapshotter.v1.overlayfs/snapshots"
"""Folder of the unpacked layers."""
MIN_SHARED_BYTES = 65_536
"""Size of the smallest files that `share_files` compares. Smaller files add up to a tenth of the trainer image."""

Writer = Callable[[IO[bytes]], None]
"""Function that writes an image archive to a stream."""


def store_folder() -> Path:
    """Return the store's containerd root folder."""
    return cache_folder() / "images" / "store"


@contextmanager
def _locked() -> Iterator[None]:
    """Hold the store's lock. A clone during an import would be incomplete."""
    store_folder().parent.mkdir(parents=True, exist_ok=True)
    with (store_folder().parent / "store.lock").open("w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def stored_references() -> list[str]:
    """Return the references of the images in the store, oldest first."""
    try:
        return list(json.loads((store_folder().parent / "references.json").read_text(encoding="utf-8")))
    except FileNotFoundError:
        return []


def change_store(
    reference: str, write: Writer | None, *, remove: Sequence[str] = (), forget: Sequence[str] = ()
) -> None:
    """Import an archive of `reference` from `write`, remove the images `remove`, and delete the blobs `forget`.

    Layers of deleted blobs stay unpacked, so containers still run. The image can no longer be pushed or exported.
    """
    changes = json.dumps({"import": write is not None, "remove": list(remove), "forget": list(forget)})
    command = [*UNSHARE, sys.executable, "-m", "infra.local.image_store", str(store_folder()), changes]
    with _locked():
        store_folder().mkdir(parents=True, exist_ok=True)
        run_with_archive(command, reference, write)
        references = [stored for stored in stored_references() if stored not in {reference, *remove}] + [reference]
        write_json(store_folder().parent / "references.json", references)


def share_files(builder_folder: Path) -> None:
    """Replace equal files of the store and of the builder's folder by hard links to one file.

    This is safe, because neither containerd nor the builder changes a layer's files in place. Do nothing if the program
    `hardlink` is not installed.
    """
    if program := shutil.which("hardlink"):
        options = ["--quiet", "--respect-xattrs", "--maximize", f"--minimum-size={MIN_SHARED_BYTES}"]
        with _locked():
            subprocess.run([program, *options, str(builder_folder), str(store_folder() / SNAPSHOTS_FOLDER)], check=True)


def run_with_archive(command: Sequence[str], reference: str, write: Writer | None) -> None:
    """Run a command with the archive from `write` as its standard input. Raises RuntimeError on failure."""
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd=CHECKOUT,
        env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
    )
    if process.stdin is None:
        raise AssertionError("Popen did not open a pipe")
    pipe_error = None
    if write is not None:
        try:
            write(process.stdin)
        except BrokenPipeError as error:
            pipe_error = error
    output, _ = process.communicate()
    if process.returncode != 0 or pipe_error:
        raise RuntimeError(f"image {reference} could not be imported:\n{output.decode(errors='replace')[-2000:]}")


def clone_store(target: Path) -> None:
    """Make `target` a containerd root with the store's images. Keep a target that already exists."""
    if target.exists():
        return
    if not stored_references():
        raise RuntimeError(f"the image store is empty; run {make_command('setup', STACK='')}")
    draft = target.with_name(target.name + ".new")
    if draft.exists():
        shutil.rmtree(draft)
    with _locked():
        subprocess.run(["cp", "--archive", "--link", str(store_folder()), str(draft)], check=True)
        for database in DATABASES:
            (draft / database).unlink()
            shutil.copy2(store_folder() / database, draft / database)
    if (draft / INGEST_FOLDER).exists():
        shutil.rmtree(draft / INGEST_FOLDER)
    draft.rename(target)


START_SECONDS = 30.0
"""Maximum seconds until containerd is ready."""


def ctr(*words: str) -> None:
    """Run one `ctr` command in the containerd namespace that the kubelet's runtime reads."""
    subprocess.run([_program("ctr"), "--namespace", "k8s.io", *words], check=True)


def _program(name: str) -> str:
    return str(built_programs() / RUNTIME_PROGRAMS[name])


def main(store: str, changes: str) -> None:
    """Apply `changes` (JSON) to the containerd root `store`.

    Import an image from standard input if `import` is true. Then remove images, and delete blobs.
    """
    # Pods read the folders of layers, and containerd creates these folders with this process's umask.
    os.umask(0o022)
    subprocess.run(["mount", "-n", "-t", "tmpfs", "tmpfs", "/run"], check=True)
    config = Path("/run/containerd.toml")
    config.write_text(
        f'version = {CONTAINERD_CONFIG_VERSION}\nroot = "{store}"\noom_score = 0\n'
        'disabled_plugins = ["io.containerd.grpc.v1.cri"]\n',
        encoding="utf-8",
    )
    daemon = subprocess.Popen([_program("containerd"), "--config", str(config)], stdin=subprocess.DEVNULL)
    deadline = time.monotonic() + START_SECONDS
    while not Path(CONTAINERD_SOCKET).exists():
        if daemon.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"containerd ended, or was not ready in {START_SECONDS:g} s; its output above says why")
        time.sleep(0.05)
    requested = json.loads(changes)
    if requested["import"]:
        ctr("images", "import", "-")
    for reference in requested["remove"]:
        ctr("images", "remove", "--sync", reference)
    for digest in requested["forget"]:
        ctr("content", "delete", digest)
    # containerd deletes blobs and replaced images during garbage collection. The synchronous deletion of a lease waits
    # for the collection. If containerd ended earlier, unpacked layers could stay.
    ctr("leases", "create", "--id", "collect")
    ctr("leases", "delete", "--sync", "collect")
    daemon.terminate()
    daemon.wait(timeout=30)


MODULES = CHECKOUT / "setup" / "go"
OPERATOR_PREFIX = "trainyard.local/operator-"
USER = 65532
"""ID of the user that runs the program in an operator's image."""
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
"""Machine architecture -> its name in images and releases."""


def program_reference(name: str) -> str:
    """Return the image name of the program in the Go module setup/go/<name>. Equal sources have equal names."""
    digest = hashlib.sha256()
    for path in sorted((MODULES / name).glob("*")):
        digest.update(path.name.encode() + path.read_bytes())
    return f"{OPERATOR_PREFIX}{name}:{digest.hexdigest()[:16]}"


def is_program(reference: str) -> bool:
    """Return True if this module creates the image, which contains an operator's program."""
    return reference.startswith(OPERATOR_PREFIX)


def stored_writer(reference: str) -> Writer:
    """Return the function that writes a stored image as an archive.

    Raises RuntimeError if set-up has not created this image.
    """
    name = reference.removeprefix(OPERATOR_PREFIX).partition(":")[0]
    program = cache_folder() / "bin" / name / name
    if reference != program_reference(name) or not is_stored(name) or not program.is_file():
        raise RuntimeError(
            f"image {reference} is not set up; run {make_command('up')}, or `python -m setup --operator={name}`"
        )
    return lambda target: write_archive(reference, program, target)


def is_stored(name: str) -> bool:
    """Return True if the image store has the program's image with its current sources."""
    return program_reference(name) in stored_references()


def store_program(name: str, program: Path) -> None:
    """Add the image of the built `program` to the image store, and remove its earlier images."""
    reference = program_reference(name)
    with (cache_folder() / "images" / "lock").open("w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        prefix = f"{OPERATOR_PREFIX}{name}:"
        stale = [stored for stored in stored_references() if stored.startswith(prefix) and stored != reference]
        change_store(reference, lambda target: write_archive(reference, program, target), remove=stale)


def write_archive(reference: str, program: Path, target: IO[bytes]) -> None:
    """Write an image with the program as its entrypoint and no other files, as an archive for containerd."""
    layer = _layer(program)
    architecture = ARCHITECTURES[platform.machine()]
    config = {
        "architecture": architecture,
        "os": "linux",
        "config": {"User": f"{USER}:{USER}", "Entrypoint": [f"/{program.name}"]},
        "rootfs": {"type": "layers", "diff_ids": [_digest(layer)]},
    }
    kind = "application/vnd.oci.image"
    blobs = [layer, json.dumps(config).encode()]
    manifest = {
        "schemaVersion": 2,
        "mediaType": f"{kind}.manifest.v1+json",
        "config": _descriptor(f"{kind}.config.v1+json", blobs[1]),
        "layers": [_descriptor(f"{kind}.layer.v1.tar", layer)],
    }
    blobs.append(json.dumps(manifest).encode())
    entry = {
        **_descriptor(manifest["mediaType"], blobs[2]),
        "platform": {"architecture": architecture, "os": "linux"},
        "annotations": {"io.containerd.image.name": reference},
    }
    with tarfile.open(fileobj=target, mode="w|") as archive:
        add_file(archive, "oci-layout", b'{"imageLayoutVersion": "1.0.0"}')
        add_file(archive, "index.json", json.dumps({"schemaVersion": 2, "manifests": [entry]}).encode())
        for blob in blobs:
            add_file(archive, f"blobs/sha256/{_digest(blob).partition(':')[2]}", blob)


def _layer(program: Path) -> bytes:
    """Return a layer with one file. Its bytes depend only on the program's name and content."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as layer:
        add_file(layer, program.name, program.read_bytes(), mode=0o755)
    return buffer.getvalue()


def _descriptor(media_type: Any, blob: bytes) -> dict[str, Any]:
    return {"mediaType": media_type, "digest": _digest(blob), "size": len(blob)}


def _digest(blob: bytes) -> str:
    return f"sha256:{hashlib.sha256(blob).hexdigest()}"


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
