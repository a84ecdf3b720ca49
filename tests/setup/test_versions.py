"""Equality of the versions in Python and in the Go modules that set-up builds."""

from __future__ import annotations

import re

import pytest

from infra.local.settings import KUBERNETES_VERSION
from setup.go_programs import MODULES
from setup.steps import CONTAINERD_VERSION, KWOK_VERSION, RUNC_VERSION

PINS = {
    ("kubernetes", "k8s.io/kubernetes"): KUBERNETES_VERSION,
    ("containerd", "github.com/containerd/containerd/v2"): CONTAINERD_VERSION,
    ("containerd-shim", "github.com/containerd/containerd/v2"): CONTAINERD_VERSION,
    ("runc", "github.com/opencontainers/runc"): RUNC_VERSION,
    ("kwok", "sigs.k8s.io/kwok"): KWOK_VERSION,
}
"""(Folder below setup/go, module) -> version in Python."""


def go_mod(folder: str) -> str:
    """Return the go.mod of a folder below setup/go."""
    return (MODULES / folder / "go.mod").read_text(encoding="utf-8")


@pytest.mark.parametrize(("folder", "module"), PINS)
def test_go_mod_has_the_version_in_python(folder: str, module: str) -> None:
    found = re.findall(rf"^\s*{re.escape(module)} v(\S+)", go_mod(folder), re.MULTILINE)
    assert found == [PINS[folder, module]]


def test_staging_modules_have_the_minor_and_patch_version_of_kubernetes() -> None:
    replaced = re.findall(r"^replace (k8s\.io/\S+) => (\S+) v(\S+)$", go_mod("kubernetes"), re.MULTILINE)
    assert len(replaced) > 25
    assert all(module == target for module, target, _ in replaced)
    assert {version for _, _, version in replaced} == {f"0.{KUBERNETES_VERSION.partition('.')[2]}"}
