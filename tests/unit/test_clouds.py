"""Cloud objects: one per kind of platform, equal file names in both clouds, and no other test of a platform's type."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import get_args

from infra.clouds import CLOUDS
from infra.config import PlatformConfig

PROJECT = Path(__file__).resolve().parents[2]
SHARED_FILES = {
    *("cloud", "cluster", "components", "config", "identity", "inventory", "network", "node_pool"),
    *("permissions", "platform", "pools", "quota_and_prices", "registry", "rules", "storage"),
}


def test_cloud_registry_has_every_platform_kind() -> None:
    union = get_args(PlatformConfig)[0]
    kinds = {get_args(config.model_fields["kind"].annotation)[0] for config in get_args(union)}
    assert set(CLOUDS) == kinds


def test_cloud_folders_have_equal_file_names() -> None:
    for cloud in ("gcp", "aws"):
        assert {path.stem for path in (PROJECT / "infra" / cloud).glob("*.py")} >= SHARED_FILES


def test_source_outside_platform_folders_tests_no_platform_type() -> None:
    words = ["git", "grep", "-lE", r"isinstance\([^)]*(Gke|Eks|Local|Kubeconfig)Config", "--", "*.py", ":!tests"]
    found = subprocess.run(words, cwd=PROJECT, capture_output=True, text=True, check=False).stdout.split()
    assert [name for name in found if not re.match(r"infra/(gcp|aws|local|existing)/", name)] == []


def test_settings_import_does_not_load_pulumi() -> None:
    code = "import stack.config, sys; print([name for name in sys.modules if name.startswith('pulumi')])"
    words = [str(PROJECT / ".venv" / "bin" / "python"), "-c", code]
    assert subprocess.run(words, cwd=PROJECT, capture_output=True, text=True, check=True).stdout == "[]\n"
