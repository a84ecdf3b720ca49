"""Debian packages of the local cluster. Set-up installs only packages whose programs are missing."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PACKAGES = {
    "iptables": "iptables",
    "conntrack": "conntrack",
    "ip": "iproute2",
    "nsenter": "util-linux",
    "unshare": "util-linux",
    "mount": "mount",
    "debootstrap": "debootstrap",
}
"""Debian package of each program."""
C_PACKAGES = {"gcc": "gcc", "pkg-config": "pkgconf"}
"""Debian package of each program for the build of runc, which is partly written in C."""
CNI_FILES = {Path("/usr/lib/cni/bridge"): "containernetworking-plugins"}
"""Debian package of each file."""
C_FILES = {Path("/usr/include/seccomp.h"): "libseccomp-dev", Path("/usr/include/stdio.h"): "libc6-dev"}
"""Debian package of each C header for runc."""
POLICY_FILE = Path("/usr/sbin/policy-rc.d")


def missing_packages(*, compiler: bool = False) -> list[str]:
    """Return the Debian packages to install. `compiler` adds the compiler for runc."""
    from infra.local.image_builder import find_builder

    programs, files = (PACKAGES | C_PACKAGES, CNI_FILES | C_FILES) if compiler else (PACKAGES, CNI_FILES)
    missing = {package for program, package in programs.items() if not shutil.which(program)}
    missing |= {package for path, package in files.items() if not path.exists()}
    try:
        find_builder()
    except RuntimeError:
        missing |= {"buildah", "ca-certificates"}
    return sorted(missing)


def install(packages: list[str]) -> None:
    """Install `packages` without starting their services. Raises RuntimeError if there is no apt-get."""
    if not shutil.which("apt-get"):
        raise RuntimeError(
            f"no apt-get: install the programs of these Debian packages and run this again: {' '.join(packages)}"
        )
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    with _without_services():
        # Complete an interrupted installation before the next one.
        install = ["apt-get", "--quiet=2", "install", "--yes", "--no-install-recommends", *packages]
        for words in (["dpkg", "--configure", "--pending"], ["apt-get", "--quiet=2", "update"], install):
            done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise RuntimeError(f"{' '.join(words)} failed:\n{(done.stdout + done.stderr)[-2000:]}")


@contextmanager
def _without_services() -> Iterator[None]:
    """Prevent Debian from starting services on installation, by a policy-rc.d file."""
    if POLICY_FILE.exists():
        yield
        return
    POLICY_FILE.write_text("#!/bin/sh\nexit 101\n", encoding="ascii")
    POLICY_FILE.chmod(0o755)
    try:
        yield
    finally:
        POLICY_FILE.unlink()
