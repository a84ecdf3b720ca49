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


def test_registry_has_every_kind_of_platform() -> None:
    union = get_args(PlatformConfig)[0]
    kinds = {get_args(config.model_fields["kind"].annotation)[0] for config in get_args(union)}
    assert set(CLOUDS) == kinds


def test_both_clouds_have_the_shared_files() -> None:
    for cloud in ("gcp", "aws"):
        assert {path.stem for path in (PROJECT / "infra" / cloud).glob("*.py")} >= SHARED_FILES


def test_no_file_outside_a_platforms_folder_tests_its_type() -> None:
    words = ["git", "grep", "-lE", r"isinstance\([^)]*(Gke|Eks|Local|Kubeconfig)Config", "--", "*.py", ":!tests"]
    found = subprocess.run(words, cwd=PROJECT, capture_output=True, text=True, check=False).stdout.split()
    assert [name for name in found if not re.match(r"infra/(gcp|aws|local|existing)/", name)] == []


def test_settings_are_read_without_pulumi() -> None:
    code = "import stack.config, sys; print([name for name in sys.modules if name.startswith('pulumi')])"
    words = [str(PROJECT / ".venv" / "bin" / "python"), "-c", code]
    assert subprocess.run(words, cwd=PROJECT, capture_output=True, text=True, check=True).stdout == "[]\n"
