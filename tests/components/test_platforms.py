"""The same job on every platform, and the outputs that README.md describes."""

from __future__ import annotations

import json
import re
import runpy
from pathlib import Path
from typing import Any

import pulumi
import pytest

from infra import cloud_image
from infra.local import lifecycle
from tests.components.cloud_program import graph
from tests.components.test_program import JOBS, LOCAL, PROJECT, program
from tests.recording import RecordingEngine, run

GKE = {"kind": "gke", "project": "some-project"}
EKS = {"kind": "eks"}


@pytest.fixture(autouse=True)
def machine_is_able(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip the check that this machine can run a cluster, and the preparation of images."""
    monkeypatch.setattr(lifecycle, "check_machine", lambda _settings: [])
    monkeypatch.setattr(cloud_image, "prepare_context", lambda: None)


@pytest.fixture
def existing(tmp_path: Path) -> dict[str, Any]:
    """Return the settings of an existing cluster."""
    (tmp_path / "kubeconfig").write_text("contexts: [{name: mine}]", encoding="utf-8")
    kubeconfig = str(tmp_path / "kubeconfig")
    return {"kind": "kubeconfig", "context": "mine", "kubeconfig": kubeconfig, "image": "example.com/trainer:1"}


def container(engine: RecordingEngine) -> dict[str, Any]:
    """Return the container of the only job, without its image and bucket, which belong to the platform."""
    (record,) = engine.of_type("batch/v1:Job")
    (found,) = record.inputs["spec"]["template"]["spec"]["containers"]
    kept = {key: value for key, value in found.items() if key not in ("image", "volumeMounts", "env")}
    return {**kept, "env": [each for each in found["env"] if each["name"] != "TRAINYARD_BUCKET"]}


def test_job_has_same_pod_on_every_platform(existing: dict[str, Any]) -> None:
    local = container(program(LOCAL, JOBS)[0])
    assert local["args"][-3:] == ["-m", "trainer", "digits"]
    for engine in (program(existing, JOBS)[0], graph(GKE, JOBS)[0], graph(EKS, JOBS)[0]):
        assert container(engine) == local


def test_readme_lists_outputs_of_program() -> None:
    _, exported = program(LOCAL)
    section = (PROJECT / "README.md").read_text(encoding="utf-8").partition("\n## Outputs\n")[2].partition("\n## ")[0]
    assert re.findall(r"(?m)^\| `(\w+)` \|", section) == [
        *(name for name in exported if name not in ("run_records", "logs", "status")),
        *("run_records", "logs", "status"),
    ]


def test_status_output_shows_jobs_and_pods() -> None:
    status = program(LOCAL)[1]["status"]
    assert status.startswith("kubectl --kubeconfig /cluster/admin.kubeconfig -n training get jobs,pods ")
    assert status.endswith("--selector app.kubernetes.io/part-of=trainyard")


def test_console_output_is_empty_without_cloud(existing: dict[str, Any]) -> None:
    assert program(LOCAL)[1]["console"] == program(existing)[1]["console"] == {}
    for platform in (GKE, EKS):
        pages = graph(platform)[1]["console"]
        assert pages
        assert all(page.startswith("https://") for page in pages.values())


@pytest.mark.parametrize("platform", [GKE, EKS], ids=["gke", "eks"])
def test_kubeconfig_output_is_secret(platform: dict[str, Any]) -> None:
    local = program(LOCAL)[0].requests["local-processes"]
    assert "kubeconfig" in local.additionalSecretOutputs
    exported: dict[str, pulumi.Output[Any]] = {}
    found: list[bool] = []

    async def body() -> None:
        settings = {"trainyard:platform": json.dumps(platform), "trainyard:jobs": "[]"}
        pulumi.runtime.set_all_config(settings)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(pulumi, "export", exported.__setitem__)
            await runpy.run_path(str(PROJECT / "__main__.py"))["main"]()
        found.append(await exported["kubeconfig"].is_secret())

    run(body)
    assert found == [True]
