"""Every platform gives a job the same container, and the program the same outputs. README.md describes the outputs."""

from __future__ import annotations

import json
import re
import runpy
from typing import Any

import pulumi
import pytest

from infra import cloud_image
from tests.components.cloud_program import graph
from tests.components.test_program import JOBS, LOCAL, PROJECT, program
from tests.recording import RecordingEngine, run

GKE = {"kind": "gke", "project": "some-project"}
EKS = {"kind": "eks"}


def container(engine: RecordingEngine) -> dict[str, Any]:
    """Return the container of the only job, without its image, bucket and mounts, which depend on the platform."""
    (found,) = engine.job_pod()["containers"]
    kept = {key: value for key, value in found.items() if key not in ("image", "volumeMounts", "env")}
    return {**kept, "env": [each for each in found["env"] if each["name"] != "TRAINYARD_BUCKET"]}


def test_job_has_same_container_on_every_platform(existing_cluster: dict[str, Any]) -> None:
    local = container(program(LOCAL, JOBS)[0])
    assert local["args"][-3:] == ["-m", "trainer", "digits"]
    for engine in (program(existing_cluster, JOBS)[0], graph(GKE, JOBS)[0], graph(EKS, JOBS)[0]):
        assert container(engine) == local


def test_program_has_same_outputs_on_every_platform(existing_cluster: dict[str, Any]) -> None:
    local = program(LOCAL)[1].keys()
    for exported in (program(existing_cluster)[1], graph(GKE)[1], graph(EKS)[1]):
        assert exported.keys() == local


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


def test_console_output_is_empty_without_cloud(existing_cluster: dict[str, Any]) -> None:
    assert program(LOCAL)[1]["console"] == program(existing_cluster)[1]["console"] == {}
    for platform in (GKE, EKS):
        pages = graph(platform)[1]["console"]
        assert pages
        assert all(page.startswith("https://") for page in pages.values())


def test_kubeconfig_of_local_cluster_is_secret() -> None:
    assert "kubeconfig" in program(LOCAL)[0].requests["local-processes"].additionalSecretOutputs


@pytest.mark.parametrize("platform", [GKE, EKS], ids=["gke", "eks"])
def test_kubeconfig_output_is_secret(platform: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cloud_image, "prepare_context", lambda: None)
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
