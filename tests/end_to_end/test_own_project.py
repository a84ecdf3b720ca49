"""A user's project outside the checkout: its script, packages and data on the local cluster."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from infra.local import provider
from infra.local.lifecycle import saved_settings
from infra.local.settings import ClusterSettings
from infra.local.trainer_image import LAYER_REPOSITORY
from tests.end_to_end.conftest import Checkout
from workloads.user_files import MAX_SCRIPT_BYTES

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(2400)]

SCRIPT = """
import os
from pathlib import Path

import cowsay
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
mine = torch.tensor(dist.get_rank() + 1.0)
dist.all_reduce(mine)
data = Path(os.environ["TRAINYARD_DATA"])
table = Path(__file__).with_name("table.json")
size = table.stat().st_size if table.exists() else 0
try:
    (data / "new.txt").write_text("")
except OSError as error:
    problem = error.strerror
word = (data / "word.txt").read_text()
print(f"sum={mine.item()} table={size} cowsay={cowsay.__version__} {data}={word} {problem}", flush=True)
dist.destroy_process_group()
"""
STACK = """
config:
  trainyard:platform: {kind: local, nodes: 2}
  trainyard:jobs:
    - name: mine
      script: ./train.py
      requirements: requirements.txt
      data: ./flowers
      hosts: 2
      resources: {cpu: 200m, memory: 1Gi}
"""
PACKAGE = "cowsay"
"""Small package in pure Python that is not in the trainer's image."""
RUN_TRAINYARD = "import sys; sys.path[0] = '.'; from commands.cli import main; sys.exit(main(sys.argv[1:]))"
"""Python program that runs `trainyard` with the program's arguments."""


class Project:
    """User's project: a folder with a script, settings, requirements and data."""

    def __init__(self, folder: Path, checkout: Checkout) -> None:
        self.folder, self.checkout = folder, checkout
        (folder / "flowers").mkdir(parents=True)
        for name, text in (("train.py", SCRIPT), ("Pulumi.local.yaml", STACK), ("flowers/word.txt", "tulip")):
            (folder / name).write_text(text, encoding="utf-8")

    def run(self, *arguments: str, status: int | None = 0) -> str:
        """Run a `trainyard` command for the project. Return its output."""
        command = (".venv/bin/python", "-c", RUN_TRAINYARD, *arguments, "--project", str(self.folder))
        return self.checkout.run(*command, status=status, seconds=900)

    def write_requirements(self, line: str) -> str:
        """Write a requirements file with one line. Return its digest."""
        text = f"{line}\n"
        (self.folder / "requirements.txt").write_text(text, encoding="utf-8")
        return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"

    def layers_on_nodes(self) -> list[set[object]]:
        """Return the images with a job's layer on each node."""
        settings = saved_settings(ClusterSettings(owner=str(self.folder), stack="local").folder)
        assert settings
        images = [provider._images_of_node(settings, index) for index in range(settings.nodes)]
        return [{each for each in found if each.startswith(LAYER_REPOSITORY)} for found in images]

    def record(self) -> dict[str, object]:
        """Return the record of the job's last run, from the bucket."""
        bucket = ClusterSettings(owner=str(self.folder), stack="local").bucket
        found: dict[str, object] = json.loads((bucket / "mine" / "run-record.json").read_text(encoding="utf-8"))
        return found


@pytest.fixture
def project(checkout: Checkout, tmp_path: Path) -> Iterator[Project]:
    """Yield a project, and destroy its stack after the test."""
    created = Project(tmp_path / "flowers-project", checkout)
    try:
        yield created
    finally:
        created.run("down", status=None)


def test_project_job_gets_packages_and_data_and_conflicting_packages_are_rejected(project: Project) -> None:
    images = []
    for version, table_bytes in (("6.1", 0), ("6.0", MAX_SCRIPT_BYTES)):
        digest = project.write_requirements(f"{PACKAGE}=={version}")
        if table_bytes:
            (project.folder / "table.json").write_text("1" * table_bytes, encoding="utf-8")
        text = project.run("up")
        line = rf"sum=3\.0 table={table_bytes} cowsay={re.escape(version)} /data=tulip Read-only file system$"
        for rank in range(2):
            assert re.search(rf"^mine/{rank} \| {line}", text, re.M), text[-3000:]
        record = project.record()
        assert record["requirements_digest"] == digest
        assert f"-{digest.removeprefix('sha256:')[:12]}" in str(record["image"])
        images.append(record["image"])
        assert all(record["image"] in found for found in project.layers_on_nodes())
    # The job's earlier image does not stay on the nodes. New nodes may have images of other stacks.
    assert all(record["image"] in found and images[0] not in found for found in project.layers_on_nodes())
    # The image has a newer NumPy.
    project.write_requirements("numpy<2")
    project.checkout = replace(project.checkout, is_verbose=False)
    text = project.run("up", status=None)
    assert re.search(r"requirements: numpy: the file needs 1\.[\d.]+, but the image has [2-9]\.[\d.]+", text), text
    assert "requirements.txt: the packages cannot be installed; the reason is above; correct the file" in text
    assert list((project.folder / "flowers").iterdir()) == [project.folder / "flowers" / "word.txt"]
