"""Mounts of a node whose cache folder is in a folder that other mounts hide."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from infra.project import CHECKOUT

PROGRAM = """
from infra.local.node import NODE_ROOT, make_mounts
from infra.local.settings import built_programs, stack_cluster

settings = stack_cluster("/checkout", "mine", nodes=1)
binaries = built_programs() / "kubernetes"
for name, folder in {
    "data": settings.node_folder(0), "bin": binaries.parent, "keys": settings.keys, "bucket": settings.bucket
}.items():
    folder.mkdir(parents=True)
    (folder / f"file-of-{name}").touch()
make_mounts(settings, binaries, 0)
for name in ("data", "bin", "keys", "bucket"):
    assert (NODE_ROOT / name / f"file-of-{name}").exists(), name
"""
"""Program that makes the mounts of a node with an empty cache folder, and checks them."""


@pytest.mark.parametrize("cache", ["/mnt", "/run", "/var/lib", "/tmp"])
def test_make_mounts_with_any_cache_folder_shows_the_files_of_the_cluster(cache: str) -> None:
    command = 'mount -n -t tmpfs tmpfs "$XDG_CACHE_HOME" && exec "$@"'
    namespaces = ["unshare", "--mount", "--pid", "--fork", "--mount-proc", "sh", "-c", command, "sh"]
    environment = {**os.environ, "XDG_CACHE_HOME": cache}
    subprocess.run([*namespaces, sys.executable, "-c", PROGRAM], cwd=CHECKOUT, env=environment, check=True, timeout=60)
