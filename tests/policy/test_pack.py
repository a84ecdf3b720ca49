"""The policy pack in a separate process. A stub replaces the package pulumi-policy, which no test environment has."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from infra.project import PROJECT_VARIABLE

CHECKOUT = Path(__file__).resolve().parents[2]
STUB = """
import json
from enum import Enum
from types import SimpleNamespace

EnforcementLevel = Enum("EnforcementLevel", {name: name.lower() for name in ("MANDATORY", "ADVISORY", "DISABLED")})
ReportViolation = ResourceValidationArgs = None
ResourceValidationPolicy = SimpleNamespace


def PolicyPack(*, policies, **_options):
    print(json.dumps({policy.name: policy.enforcement_level.value for policy in policies}))
"""
STACK = """
config:
  trainyard:platform: {kind: local, nodes: 1}
  trainyard:jobs: []
  trainyard:policy: {levels: {private-nodes: disabled}}
"""


def test_policy_pack_applies_the_levels_of_the_projects_stack(tmp_path: Path) -> None:
    project, packages = tmp_path / "project", tmp_path / "packages"
    (packages / "pulumi_policy").mkdir(parents=True)
    (packages / "pulumi_policy" / "__init__.py").write_text(STUB, encoding="utf-8")
    (packages / "pulumi_policy" / "proxy.py").write_text("class UnknownValueError(Exception): ...\n", encoding="utf-8")
    project.mkdir()
    # The checkout also has a stack of this name.
    (project / "Pulumi.dev.yaml").write_text(STACK, encoding="utf-8")
    environment = {**os.environ, "STACK": "dev", PROJECT_VARIABLE: str(project), "PYTHONPATH": str(packages)}
    pack = CHECKOUT / "policy" / "pack"
    done = subprocess.run([sys.executable, pack], env=environment, capture_output=True, text=True, check=True)
    levels = json.loads(done.stdout)
    assert (levels["private-nodes"], levels["shielded-nodes"]) == ("disabled", "mandatory")
