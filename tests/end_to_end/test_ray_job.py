"""Jobs of kind `ray-job` as a user runs them on the local cluster: lost pods, and a driver that fails."""

from __future__ import annotations

import re

import pytest

from infra.local import leftovers
from settings.types import OPERATORS_NAMESPACE
from tests.end_to_end.conftest import Checkout

pytestmark = [pytest.mark.cluster, pytest.mark.long, pytest.mark.timeout(2400)]

NAME = "digits-ray"
FAILING_DRIVER = "import ray\n\nray.init()\nraise SystemExit(78)\n"
"""Driver that fails with exit code 78. Most other kinds of jobs do not restart after this code."""


@pytest.mark.parametrize("lost", ["worker", "launcher", "head"])
def test_digits_ray_with_a_lost_pod_trains_to_the_end(checkout: Checkout, lost: str) -> None:
    def delete_pod() -> None:
        selector = f"trainyard.dev/job={NAME},app.kubernetes.io/component={lost}"
        pod, *_ = checkout.objects("pods", f"--selector={selector}")
        # After SIGTERM, Ray runs for up to 25 seconds. All epochs may be over by then, so kill it after one second.
        checkout.kubectl("delete", "pod", pod["metadata"]["name"], "--wait=false", "--grace-period=1")

    before, after = checkout.up_with_fault(f"JOB={NAME}", at=" train epoch=3 ", fault=delete_pod)
    try:
        for rank in range(2):
            assert re.search(rf"^{NAME}/{rank} \| .*train epoch=1 .* rank={rank}/2$", before, re.M), before[-3000:]
        # The workers keep training without a launcher.
        resumed = re.search(rf"^{NAME}/\d \| .*resume epoch=([4-9]|1[01]) ", after, re.M)
        assert bool(resumed) == (lost != "launcher"), after[-3000:]
        result = re.search(rf"^{NAME}: complete after .*test accuracy ([\d.]+) %", after, re.M)
        assert result, after[-3000:]
        assert float(result[1]) > 95
        assert re.search(rf"^{NAME} +ray-job +complete ", checkout.run("make", "status"), re.M)
        assert "done test_accuracy=" in checkout.run("make", "logs")
        operator_log = checkout.tool(
            *("kubectl", "--kubeconfig", str(checkout.cluster.kubeconfig), "--namespace", OPERATORS_NAMESPACE),
            *("logs", "deployment/kuberay-operator", "--tail=-1"),
        )
        assert "forbidden" not in operator_log
    finally:
        text = checkout.run("make", "down")
    assert "nothing is left" in text
    assert leftovers.find(checkout.cluster.folder, checkout.cluster.cgroup) == []


def test_driver_that_fails_runs_again_and_then_fails_the_job(checkout: Checkout) -> None:
    job = {"name": "failing", "kind": "ray-job", "image": "ray", "script": "./failing.py", "restarts": 1}
    (checkout.folder / "failing.py").write_text(FAILING_DRIVER, encoding="utf-8")
    try:
        with checkout.changed_jobs({**job, "resources": {"cpu": "400m", "memory": "2Gi"}}):
            text = checkout.run("make", "up", status=2, seconds=1200)
        assert "reason: AppFailed: Job entrypoint command failed with exit code 78" in text, text[-3000:]
        (found,) = checkout.objects("rayjobs")
        assert found["status"]["failed"] == 2
        assert checkout.objects("rayclusters") == []
    finally:
        checkout.run("make", "down")
