"""Elastic examples as users run them: a host is killed during an epoch, the others continue, and the host returns.

A host is a pod of the job.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.end_to_end.conftest import Checkout
from workloads.spec import yaml_blocks

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(2400)]

LIGHTNING = "elastic-lightning"
_, WITH_ETCD, FIVE_JOBS = (yaml.safe_load(block) for block in yaml_blocks(LIGHTNING))
"""Jobs of the second and the third settings on the example's page."""
CLOSE_RENDEZVOUS_PROGRAM = """
import etcd, json, os
host, port = os.environ["PET_RDZV_ENDPOINT"].split(":")
client, key = etcd.Client(host, int(port)), f"/torchelastic/p2p/run_{os.environ['PET_RDZV_ID']}/rdzv/active_version"
client.write(key, json.dumps({**json.loads(client.get(key).value), "status": "closed"}))
"""
"""Program that closes the rendezvous, as a host that gives up does."""


def up_with_a_killed_host(
    checkout: Checkout, job: str, host: int, epoch: int, *words: str, closes_rendezvous: bool = False
) -> tuple[str, str]:
    """Run `make up`, and kill a host of the job during the epoch. Return the output before and after the kill.

    The job must complete. With `closes_rendezvous`, the host first closes the rendezvous.
    """
    selector = f"trainyard.dev/job={job},batch.kubernetes.io/job-completion-index={host}"

    def kill_host() -> None:
        if closes_rendezvous:
            (pod,) = checkout.objects("pods", f"--selector={selector}")
            python = ("/opt/trainyard/venv/bin/python", "-c", CLOSE_RENDEZVOUS_PROGRAM)
            checkout.kubectl("exec", pod["metadata"]["name"], "--", *python)
        checkout.kubectl("delete", "pod", "--selector", selector, "--force", "--grace-period=0")

    before, after = checkout.up_with_fault(*words, at=f" train epoch={epoch} ", fault=kill_host)
    assert f"{job}: complete after" in after
    return before, after


@pytest.mark.long
def test_elastic_job_continues_without_host_and_readmits_it(checkout: Checkout) -> None:
    _, after = up_with_a_killed_host(checkout, "elastic", 1, 3, "JOB=elastic")
    assert re.search(r"^elastic/\d \| resume ", after, re.M), "the other hosts must resume"
    assert re.search(r"^elastic/\d \| train .* rank=\d/3 .*host=elastic-1 ", after, re.M), "the host must come back"


def assert_lightning(before: str, after: str, host: int) -> None:
    """Assert that a group of three ranks trained before the fault, and that the job recovered afterwards.

    The other hosts must resume, `host` must come back, and three ranks must end with equal metrics. Only rank 0 may
    upload the model.
    """
    assert re.search(rf"^{LIGHTNING}/\d \| train .* rank=\d/3 ", before, re.M), before[-3000:]
    assert re.search(rf"^{LIGHTNING}/\d \| resume step=\d+ ", after, re.M), "the other hosts must resume"
    returned = rf"^{LIGHTNING}/\d \| train .* rank=\d/3 host={LIGHTNING}-{host} "
    assert re.search(returned, after, re.M), "the host must come back"
    tests = re.findall(rf"^{LIGHTNING}/\d \| test epoch=(\d+) (accuracy=(\S+) loss=\S+) rank=(\d)/3 ", after, re.M)
    last = [test for test in tests if test[0] == tests[-1][0]]
    assert {rank for _, _, _, rank in last} == {"0", "1", "2"}
    assert len({metrics for _, metrics, _, _ in last}) == 1, "all ranks must report the same metrics"
    assert float(last[0][2]) > 90
    assert re.findall(rf"^{LIGHTNING}/\d \| upload .* rank=(\d)/", after, re.M) == ["0"]


def events(folder: Path) -> list[dict[str, Any]]:
    """Return the events in the metrics of all ranks of a run."""
    files = sorted((folder / "metrics").glob("rank-*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text(encoding="utf-8").splitlines()]


def is_model(path: Path) -> bool:
    """Return True if the path is a ZIP file, as `torch.save` writes."""
    return path.is_file() and path.read_bytes()[:2] == b"PK"


@pytest.mark.long
def test_lightning_continues_without_host_and_readmits_it(checkout: Checkout) -> None:
    before, after = up_with_a_killed_host(checkout, LIGHTNING, 1, 2, f"JOB={LIGHTNING}")
    assert_lightning(before, after, 1)
    assert is_model(checkout.cluster.bucket / LIGHTNING / "model.pt")


@pytest.mark.long
def test_lightning_with_etcd_continues_without_host_0_and_readmits_it(checkout: Checkout) -> None:
    checkout.run("make", "down")
    with checkout.changed_jobs(*WITH_ETCD):
        before, after = up_with_a_killed_host(checkout, LIGHTNING, 0, 2)
        (etcd,) = checkout.objects("deployments")
        (service,) = checkout.objects("services", f"--field-selector=metadata.name={LIGHTNING}-etcd")
        ids = {each["metadata"]["uid"] for each in checkout.objects("jobs")}
        version = checkout.kubectl("exec", f"deployment/{LIGHTNING}-etcd", "--", "etcd", "--version")
    assert_lightning(before, after, 0)
    assert etcd["status"]["readyReplicas"] == 1
    assert service["spec"]["ports"][0]["port"] == 2379
    assert len(ids) == 1
    assert "etcd Version: 3." in version


@pytest.mark.long
def test_lightning_with_closed_rendezvous_reopens_it_and_continues(checkout: Checkout) -> None:
    checkout.run("make", "down")
    with checkout.changed_jobs(*WITH_ETCD):
        before, after = up_with_a_killed_host(checkout, LIGHTNING, 1, 2, closes_rendezvous=True)
    assert "RendezvousClosedError" in after, "the other hosts must give up, too"
    assert "rendezvous: open again after a failed or finished host had closed it" in after
    assert_lightning(before, after, 1)


@pytest.mark.long
def test_lightning_five_jobs_train_concurrently(checkout: Checkout) -> None:
    names = [each["name"] for each in FIVE_JOBS]
    assert len(names) == 5
    checkout.run("make", "down")
    with checkout.changed_jobs(*FIVE_JOBS):
        text = checkout.run("make", "up", seconds=1800)
        jobs = checkout.objects("jobs")
    assert {each["metadata"]["name"] for each in jobs} == set(names)
    for name in names:
        assert f"{name}: complete after" in text, text[-3000:]
        written = events(checkout.cluster.bucket / name)
        uploads = [(each["rank"], each["path"]) for each in written if each["event"] == "upload"]
        assert uploads == [(0, f"file:///bucket/{name}/model.pt")]
        for rank in range(2):
            trained = [each for each in written if (each["event"], each["rank"], each["ranks"]) == ("train", rank, 2)]
            assert trained
            assert {each["host"].rpartition("-")[0] for each in trained} == {name}
        assert is_model(checkout.cluster.bucket / name / "model.pt")
    last_start = max(each["status"]["startTime"] for each in jobs)
    assert all(each["status"]["completionTime"] > last_start for each in jobs), "all jobs must run at the same time"
