"""`make status` and `make logs` on a real cluster for a user with permissions in one namespace only."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from commands.follow import follow
from commands.monitor.cluster import Cluster, StackOutputs
from commands.monitor.screen import Screen
from commands.status import print_snapshot, take_snapshot
from infra.local.settings import ClusterSettings
from infra.naming import QUEUE_LABEL
from tests.commands.conftest import job
from tests.local.conftest import wait_for

pytestmark = pytest.mark.cluster

NAMESPACE = "team-a"


@pytest.fixture
def member_kubeconfig(local: ClusterSettings, kubectl: Callable[..., str], tmp_path: Path) -> Iterator[str]:
    """Yield the kubeconfig of a user with the role `edit` in one namespace. Delete the namespace afterwards."""
    kubectl("create", "namespace", NAMESPACE)
    kubectl("create", "serviceaccount", "member", "-n", NAMESPACE)
    account = f"--serviceaccount={NAMESPACE}:member"
    kubectl("create", "rolebinding", "member", "-n", NAMESPACE, "--clusterrole=edit", account)
    found: dict[str, Any] = yaml.safe_load(local.kubeconfig.read_text(encoding="utf-8"))
    found["users"][0]["user"] = {"token": kubectl("create", "token", "member", "-n", NAMESPACE).strip()}
    file = tmp_path / "kubeconfig"
    file.write_text(yaml.safe_dump(found), encoding="utf-8")
    yield str(file)
    kubectl("delete", "namespace", NAMESPACE, "--wait")


def status_of(kubeconfig: str, name: str) -> str:
    """Return the output of `make status` for a job."""
    out = io.StringIO()
    print_snapshot(take_snapshot(Cluster(kubeconfig, NAMESPACE), (name,)), out)
    return out.getvalue()


def test_follow_and_status_without_node_permissions_show_the_job(
    member_kubeconfig: str, kubectl: Callable[..., str]
) -> None:
    kubectl("apply", "-n", NAMESPACE, "-f", "-", document=job("mine", "echo 'train epoch=1 step=3/8 loss=0.25'"))
    out = io.StringIO()
    found = StackOutputs(kubeconfig_path=member_kubeconfig, namespace=NAMESPACE, jobs=("mine",))
    assert follow(found, found.jobs, Screen(out)) == 0
    assert "loss=0.25" in out.getvalue()
    text = status_of(member_kubeconfig, "mine")
    assert "complete" in text
    assert "nodes: you have no permission to list them: the API server answers 403" in text


def test_status_without_node_permissions_does_not_report_the_pod_lost(
    member_kubeconfig: str, kubectl: Callable[..., str]
) -> None:
    script = "echo 'train epoch=1 step=3/8 loss=0.25 global_step=3'; exec /usr/bin/sleep 600"
    kubectl("apply", "-n", NAMESPACE, "-f", "-", document=job("runs", script))
    kubectl("wait", "-n", NAMESPACE, "job/runs", "--for=jsonpath={.status.ready}=1", "--timeout=60s")
    wait_for("the step is shown", lambda: "3/8 of epoch 1" in status_of(member_kubeconfig, "runs"))
    assert "no longer exists" not in status_of(member_kubeconfig, "runs")


def test_status_without_permissions_names_what_it_cannot_read(
    member_kubeconfig: str, kubectl: Callable[..., str]
) -> None:
    queued = job("waits", suspend=True)
    queued["metadata"]["labels"] = {QUEUE_LABEL: "research"}
    kubectl("apply", "-n", NAMESPACE, "-f", "-", document=queued)
    kubectl("wait", "-n", NAMESPACE, "job/waits", "--for=condition=Suspended", "--timeout=60s")
    assert "you have no permission to read Kueue's reason" in " ".join(status_of(member_kubeconfig, "waits").split())
    text = " ".join(status_of(member_kubeconfig, "none").split())
    assert "absent" in text
    assert "or you have no permission to list its kind: the API server answers 403" in text
