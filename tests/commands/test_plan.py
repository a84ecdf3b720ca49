"""Steps of a preview: counts by kind, and the plans that `forbidden` rejects because of running jobs or a bucket."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from typing import Any

import pytest

from commands.review import recorded
from commands.review.plan import by_kind, forbidden, steps_of
from infra.naming import POOL_LABEL

POOL = "gcp:container/nodePool:NodePool"
GROUP = "aws:eks/nodeGroup:NodeGroup"
BUCKET = "gcp:storage/bucket:Bucket"


def preview(*steps: tuple[str, str, str, dict[str, Any]]) -> str:
    """Return the output of `pulumi preview --json` for steps. A step is its operation, type, name and state."""
    found = []
    for operation, kind, name, state in steps:
        key = "oldState" if operation in ("delete", "delete-replaced") else "newState"
        found.append({"op": operation, "urn": f"urn:pulumi:s::p::a:b:Parent${kind}::{name}", key: state})
    return "warning: something\n" + json.dumps({"steps": found})


def state(name: str, **more: Any) -> dict[str, Any]:
    """Return the state of a resource with this name."""
    return {"inputs": {"name": name}, **more}


def test_by_kind_counts_a_replacement_once_and_lists_it_first() -> None:
    text = preview(
        ("delete-replaced", POOL, "gpus-nodes", state("gpus")),
        ("replace", POOL, "gpus-nodes", state("gpus")),
        ("create-replacement", POOL, "gpus-nodes", state("gpus")),
        ("create", BUCKET, "bucket", state("b")),
        ("same", "pulumi:pulumi:Stack", "stack", {}),
    )
    assert by_kind(steps_of(text)) == {"replace": {"NodePool": 1}, "create": {"Bucket": 1}}
    assert next(iter(by_kind(steps_of(text)))) == "replace"


def test_steps_of_an_unknown_operation_raises() -> None:
    with pytest.raises(ValueError, match="operation explode of"):
        steps_of(preview(("explode", POOL, "gpus-nodes", state("gpus"))))


@pytest.mark.parametrize("operation", ["delete", "replace"])
def test_forbidden_reports_a_deleted_or_replaced_pool_with_a_running_job_unless_allowed(operation: str) -> None:
    steps = steps_of(preview((operation, POOL, "gpus-nodes", state("gpus"))))
    (found,) = forbidden(steps, {"gpus": ["digits"]}, ())
    assert "pool gpus, which runs digits" in found
    assert "may_replace: [gpus]" in found
    assert forbidden(steps, {}, ()) == []
    assert forbidden(steps, {"gpus": ["digits"]}, ["gpus"]) == []
    assert forbidden(steps, {"gpus": ["digits"]}, ["other"])


@pytest.mark.parametrize("operation", ["delete", "replace"])
def test_forbidden_finds_the_jobs_of_a_node_pool_by_the_label_of_its_nodes(operation: str) -> None:
    labels = {"nodeConfig": {"labels": {POOL_LABEL: "gpus"}}}
    spot = {"inputs": {"name": "gpus-0-spot", **labels}}
    steps = steps_of(preview((operation, POOL, "gpus-0-spot-nodes", spot)))
    (found,) = forbidden(steps, {"gpus": ["digits"]}, ())
    assert found == (
        f"would {operation} pool gpus-0-spot, which runs digits; "
        "write `policy: {may_replace: [gpus-0-spot]}` in the stack to allow this"
    )
    assert forbidden(steps, {"gpus": ["digits"]}, ["gpus-0-spot"]) == []
    assert forbidden(steps, {"gpus-0-spot": ["digits"], "cpus": ["digits"]}, ()) == []


@pytest.mark.parametrize(
    ("kind", "before", "after"),
    [
        (GROUP, {"launchTemplate": {"id": "lt-1", "version": "1"}}, {"launchTemplate": {"id": "lt-1", "version": "2"}}),
        (GROUP, {"version": "1.35"}, {"version": "1.36"}),
        (POOL, {"nodeConfig": {"machineType": "n1-standard-4"}}, {"nodeConfig": {"machineType": "n1-standard-8"}}),
        (POOL, {"nodeLocations": ["us-central1-a"]}, {"nodeLocations": ["us-central1-b"]}),
    ],
)
def test_forbidden_reports_recycled_nodes_with_a_running_job_unless_allowed(
    kind: str, before: dict[str, Any], after: dict[str, Any]
) -> None:
    name = {"nodeGroupName" if kind == GROUP else "name": "gpus"}
    steps = steps_of(update(kind, {**name, **before}, {**name, **after}))
    (found,) = forbidden(steps, {"gpus": ["digits"]}, ())
    assert "would recycle the nodes of pool gpus, which runs digits" in found
    assert forbidden(steps, {"gpus": ["digits"]}, ["gpus"]) == []
    grown = {**name, "scalingConfig": {"desiredSize": 3}} if kind == GROUP else {**name, "nodeCount": 3}
    assert forbidden(steps_of(update(kind, name, grown)), {"gpus": ["digits"]}, ()) == []


def update(kind: str, before: dict[str, Any], after: dict[str, Any]) -> str:
    """Return the output of `pulumi preview --json` for an update of a resource's inputs in place."""
    urn = f"urn:pulumi:s::p::a:b:Parent${kind}::gpus-nodes"
    step = {"op": "update", "urn": urn, "oldState": {"inputs": before}, "newState": {"inputs": after}}
    return json.dumps({"steps": [step]})


@pytest.mark.parametrize("kind", ["gcp:container/cluster:Cluster", "aws:eks/cluster:Cluster"])
@pytest.mark.parametrize("operation", ["delete", "replace"])
def test_forbidden_reports_a_deleted_or_replaced_cluster_with_deletion_protection(operation: str, kind: str) -> None:
    protected = {"inputs": {"name": "train", "deletionProtection": True}}
    (found,) = forbidden(steps_of(preview((operation, kind, "cluster", protected))), {}, ["train"])
    assert found.startswith(f"would {operation} cluster train, which has `deletion_protection`; ")
    assert forbidden(steps_of(preview((operation, kind, "cluster", state("train")))), {}, ()) == []
    assert forbidden(steps_of(preview(("update", kind, "cluster", protected))), {}, ()) == []


def test_forbidden_reports_a_deleted_bucket_unless_retained_or_allowed() -> None:
    steps = steps_of(preview(("delete", BUCKET, "bucket", state("checkpoints"))))
    assert "bucket checkpoints" in forbidden(steps, {}, ())[0]
    assert forbidden(steps, {}, ["checkpoints"]) == []
    kept = steps_of(preview(("delete", BUCKET, "bucket", state("checkpoints", retainOnDelete=True))))
    assert forbidden(kept, {}, ()) == []


def test_forbidden_ignores_an_update_that_keeps_the_nodes() -> None:
    steps = steps_of(preview(("update", POOL, "gpus-nodes", state("gpus"))))
    assert forbidden(steps, {"gpus": ["digits"]}, ()) == []


def test_interrupted_recording_waits_for_the_end_of_the_program() -> None:
    ended: list[bool] = []

    async def program() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.sleep(0)
        ended.append(True)

    with pytest.raises(KeyboardInterrupt):
        recorded.run(program)
    assert ended
