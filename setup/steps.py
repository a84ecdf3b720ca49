"""Set-up steps that a stack needs on this machine before `pulumi up`, in order, and the Debian packages to install."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from infra.builtin_images import TRAINER
from infra.local.image_store import stored_references
from infra.local.settings import KUBERNETES_VERSION, PAUSE_IMAGE, PROGRAMS
from infra.local.trainer_image import (
    TRAINER_REPOSITORY,
    ensure_stored,
    image_reference,
)
from infra.operator_releases import needed_releases
from setup import datasets, go_programs, pulumi_cli, releases
from setup import operators as operator_steps
from setup.disk import GO_BUILDS, IMAGES, PYTHON_PACKAGES
from setup.progress import Step
from setup.releases import DownloadError, Downloads

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
"""Debian package of each network plugin of the nodes."""
C_FILES = {Path("/usr/include/seccomp.h"): "libseccomp-dev", Path("/usr/include/stdio.h"): "libc6-dev"}
"""Debian package of each C header for runc."""
POLICY_FILE = Path("/usr/sbin/policy-rc.d")
NO_SERVICES = "#!/bin/sh\n# Trainyard set-up; delete this file if no set-up runs.\nexit 101\n"
"""Content of POLICY_FILE during an installation. Set-up later removes a file with this content that a crash left."""
KUBERNETES = go_programs.GoProgram(
    module="kubernetes",
    package=".",
    flags=[
        f"-X k8s.io/component-base/version.gitVersion=v{KUBERNETES_VERSION}",
        f"-X k8s.io/component-base/version.gitMajor={KUBERNETES_VERSION.split('.')[0]}",
        f"-X k8s.io/component-base/version.gitMinor={KUBERNETES_VERSION.split('.')[1]}",
    ],
    binary="kubernetes",
    names=PROGRAMS,
)
CONTAINERD_VERSION = "2.4.2"
_CONTAINERD_FLAGS = [f"-X github.com/containerd/containerd/v2/version.Version={CONTAINERD_VERSION}"]
CONTAINERD = go_programs.GoProgram(
    module="containerd", package=".", flags=_CONTAINERD_FLAGS, binary="containerd", names=["ctr"]
)
CONTAINERD_SHIM = go_programs.GoProgram(
    module="containerd-shim",
    package="github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2",
    flags=_CONTAINERD_FLAGS,
    binary="containerd-shim-runc-v2",
)
"""Program of containerd's shim. It needs its own binary, because a shim starts every plugin in its binary."""
RUNC_VERSION = "1.5.2"
RUNC = go_programs.GoProgram(
    module="runc",
    package="github.com/opencontainers/runc",
    binary="runc",
    c_tags=["seccomp", "urfave_cli_no_docs"],
)
RUNTIME = [CONTAINERD, CONTAINERD_SHIM, RUNC]
"""Container runtime programs. Their projects no longer release fixes for the versions in Debian 12."""
KWOK_VERSION = "0.8.0"
KWOK = go_programs.GoProgram(
    module="kwok",
    package="sigs.k8s.io/kwok/cmd/kwok",
    flags=[f"-X sigs.k8s.io/kwok/pkg/consts.Version=v{KWOK_VERSION}"],
    binary="kwok",
)
DEBIAN_STEP, DIGITS_STEP, SOTU_STEP = "Debian packages", "handwritten digits", "State of the Union addresses"
RUNTIME_STEP = f"containerd {CONTAINERD_VERSION} and runc {RUNC_VERSION}"
RUNTIME_MINUTES, PULUMI_MINUTES, KUBERNETES_MINUTES, IMAGE_MINUTES = 1, 10, 5, 10
"""Minutes of the builds on two cores. Set-up builds Pulumi and the trainer image at the same time."""
PAUSE = go_programs.GoProgram(module="pause", package=".", flags=[], binary="pause")


def steps(
    *,
    cluster: bool,
    image: bool = False,
    operators: frozenset[str] = frozenset(),
    builtin_images: frozenset[str] = frozenset(),
) -> list[Step]:
    """Return the steps for a stack whose jobs need `operators`, and `builtin_images` in addition to the trainer image.

    `cluster` adds the steps of the local cluster. `image` adds the steps for the trainer image of a cloud stack.
    """
    downloads = Downloads()
    pulumi = _pulumi(downloads)
    if not cluster:
        return [pulumi, *([_digits(), _sotu()] if image else []), *operator_steps.steps(operators, cluster=False)]
    has_trainer_image = any(each.startswith(f"{TRAINER_REPOSITORY}:") for each in stored_references())
    return [
        _debian(),
        # This step precedes the other Go programs, because the image store needs containerd.
        Step(
            name=RUNTIME_STEP,
            is_done=lambda: all(program.is_built() for program in RUNTIME),
            do=lambda progress: _get_runtime(downloads, progress),
            first_minutes=RUNTIME_MINUTES,
            disk=[GO_BUILDS],
        ),
        pulumi,
        _kubernetes(downloads),
        Step(name="pause image", is_done=lambda: PAUSE_IMAGE in stored_references(), do=_store_pause),
        # The next three steps run while the Go programs compile: they mainly download, unpack and write.
        _digits(after=[DEBIAN_STEP]),
        _sotu(after=[DIGITS_STEP]),
        Step(
            name="trainer image",
            is_done=lambda: image_reference(TRAINER) in stored_references(),
            do=lambda progress: _store(image_reference(TRAINER), progress),
            after=[DEBIAN_STEP, DIGITS_STEP, SOTU_STEP, RUNTIME_STEP],
            first_minutes=IMAGE_MINUTES,
            # After a change of the trainer, the build adds a small layer to the earlier image's layers.
            disk=[] if has_trainer_image else [PYTHON_PACKAGES, IMAGES],
        ),
        *(_builtin_image(name) for name in sorted(builtin_images)),
        *operator_steps.steps(operators, cluster=True),
    ]


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


def install_packages(packages: list[str]) -> None:
    """Install `packages` without starting their services. Raises RuntimeError if apt-get is missing or fails."""
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
    """Prevent Debian from starting the services of installed packages, with a policy-rc.d file."""
    if POLICY_FILE.exists() and not _has_own_policy():
        yield
        return
    POLICY_FILE.write_text(NO_SERVICES, encoding="ascii")
    POLICY_FILE.chmod(0o755)
    try:
        yield
    finally:
        POLICY_FILE.unlink(missing_ok=True)


def _has_own_policy() -> bool:
    """Return True if an installation by set-up is running or crashed."""
    return POLICY_FILE.exists() and POLICY_FILE.read_bytes() == NO_SERVICES.encode()


def _debian() -> Step:
    return Step(
        name=DEBIAN_STEP,
        # After a crash, the step completes the installation and removes the policy, even if all programs are present.
        is_done=lambda: not missing_packages() and not _has_own_policy(),
        do=lambda _progress: install_packages(missing_packages()),
    )


def _pulumi(downloads: Downloads) -> Step:
    return Step(
        name="Pulumi",
        is_done=pulumi_cli.is_complete,
        do=lambda progress: pulumi_cli.get_pulumi(downloads, progress),
        first_minutes=PULUMI_MINUTES,
        disk=[GO_BUILDS],
    )


def _get_runtime(downloads: Downloads, progress: Callable[[str], None]) -> None:
    try:
        releases.install(RUNTIME, releases.runtime_releases(CONTAINERD_VERSION, RUNC_VERSION), downloads)
    except DownloadError as error:
        if packages := missing_packages(compiler=True):
            install_packages(packages)
        downloads.report(error, progress)
        go_programs.build_all(RUNTIME)


def _kubernetes(downloads: Downloads) -> Step:
    def get(progress: Callable[[str], None]) -> None:
        try:
            releases.install([KUBERNETES], releases.kubernetes_releases(KUBERNETES_VERSION), downloads)
        except DownloadError as error:
            downloads.report(error, progress)
            go_programs.build_all([KUBERNETES])

    return Step(
        name=f"Kubernetes {KUBERNETES_VERSION}, etcd and CoreDNS",
        is_done=KUBERNETES.is_built,
        do=get,
        first_minutes=KUBERNETES_MINUTES,
        disk=[GO_BUILDS],
    )


def _builtin_image(name: str) -> Step:
    """Return the step of a builtin image. It runs before the cluster starts, so nodes get the image as hard links."""
    return Step(
        name=f"image {name}",
        is_done=lambda: image_reference(name) in stored_references(),
        do=lambda progress: _store(image_reference(name), progress),
    )


def _digits(after: Collection[str] | None = None) -> Step:
    return Step(name=DIGITS_STEP, is_done=datasets.has_digits, do=lambda _progress: datasets.get_digits(), after=after)


def _sotu(after: Collection[str] | None = None) -> Step:
    return Step(name=SOTU_STEP, is_done=datasets.has_sotu, do=lambda _progress: datasets.get_sotu(), after=after)


def rehearsal_steps(operators: frozenset[str], scheme: str, *, image: bool = False) -> list[Step]:
    """Return the steps for the rehearsal of a stack whose bucket has URLs of `scheme`, `gs` or `s3`.

    A rehearsal neither builds nor pulls images. `image` adds the data sets, which the plan of a trainer image needs.
    """
    programs = [KWOK, *(operator_steps.program_of(each.name) for each in needed_releases(operators))]
    programs += [go_programs.GCS_SERVER] if scheme == "gs" else []
    downloads = Downloads()
    return [
        _debian(),
        _pulumi(downloads),
        _kubernetes(downloads),
        Step(
            name="programs of rehearsals from Go modules",
            is_done=lambda: all(program.is_built() for program in programs),
            do=lambda _progress: go_programs.build_all(programs),
            first_minutes=operator_steps.PROGRAM_MINUTES * len(programs),
        ),
        *([_digits(), _sotu()] if image else []),
        *operator_steps.steps(operators, cluster=False),
    ]


def _store_pause(progress: Callable[[str], None]) -> None:
    go_programs.build_all([PAUSE])
    _store(PAUSE_IMAGE, progress)


def _store(reference: str, progress: Callable[[str], None]) -> None:
    ensure_stored(reference, progress)
