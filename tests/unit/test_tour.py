"""Trainyard accepts the settings in the README, the tour and the page about scripts."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.hardware import Capacity
from stack import validation
from stack.config import parse
from tests.unit.refused import CLUSTER, KUBECONFIG

PROJECT = Path(__file__).resolve().parents[2]
SMALLEST = Capacity(millicores=2000, memory=8 * 2**30)
"""Machine that README.md requires."""


def blocks(page: str) -> list[dict[str, Any]]:
    """Return the YAML blocks of a page, as settings of stacks."""
    text = (PROJECT / page).read_text(encoding="utf-8")
    found = [yaml.safe_load(textwrap.dedent(each)) for each in re.findall(r"```yaml\n(.*?)```", text, flags=re.DOTALL)]
    return [
        {key.removeprefix("trainyard:"): value for key, value in each.get("config", each).items()} for each in found
    ]


def test_tour_stacks_are_valid() -> None:
    first, attached, volume = blocks("docs/tour.md")
    config = parse(first)
    (job,) = config.jobs
    assert (job.script, config.platform.kind) == ("/opt/team/train.py", "gke")
    here = {"kubeconfig": str(KUBECONFIG), "context": CLUSTER["context"]}
    assert parse({**attached, "platform": {**attached["platform"], **here}}).platform.kind == "kubeconfig"
    assert volume["spec"]["storageClassName"] == attached["platform"]["bucket"]["storage_class"]


@pytest.mark.parametrize("page", ["README.md", "docs/bring-your-own-script.md"])
def test_page_stacks_are_valid_on_smallest_machine(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "train.py").write_text("print()\n", encoding="utf-8")
    monkeypatch.setattr(validation, "CHECKOUT", tmp_path)
    monkeypatch.setattr(validation, "this_machine", lambda: SMALLEST)
    found = blocks(page)
    assert found
    for block in found:
        secrets = {name: True for job in block["jobs"] for name in job.get("secrets", {}).values()}
        parse({"platform": {**CLUSTER, "kubeconfig": str(KUBECONFIG)}, **block}, secrets)
