"""A plugin's response to Diff: the paths that a change of inputs affects, and the resulting action."""

from __future__ import annotations

from typing import Any

from pulumi.runtime.proto import provider_pb2

from commands.review.official import PlannedChange, action_of, planned_changes, value_at
from simulation.cloud.values import UNKNOWN

KINDS = provider_pb2.PropertyDiff.Kind
POOL = {"nodeConfig": {"diskSizeGb": 100, "guestAccelerators": [{"type": "nvidia-l4"}]}}
COMPUTED = {"nodeConfig.imageType": "UPDATE", "placementPolicy.policyName": "UPDATE_REPLACE"}


def answer(detailed: dict[str, str], **summary: Any) -> provider_pb2.DiffResponse:
    """Return a response with these paths and kinds."""
    paths = {path: provider_pb2.PropertyDiff(kind=KINDS.Value(kind)) for path, kind in detailed.items()}
    some = provider_pb2.DiffResponse.DIFF_SOME if detailed or summary else provider_pb2.DiffResponse.DIFF_NONE
    return provider_pb2.DiffResponse(changes=some, detailedDiff=paths, **summary)


def test_plan_of_unchanged_inputs_is_no_change() -> None:
    computed = answer(COMPUTED, diffs=["nodeConfig", "placementPolicy"], replaces=["placementPolicy"])
    assert planned_changes(computed, computed, POOL, POOL) == []


def test_changed_input_remains_among_computed_ones() -> None:
    unchanged = answer(COMPUTED, diffs=["nodeConfig", "placementPolicy"], replaces=["placementPolicy"])
    found = answer(COMPUTED | {"nodeConfig.diskSizeGb": "UPDATE"}, diffs=["nodeConfig"], replaces=["placementPolicy"])
    news = {"nodeConfig": {**POOL["nodeConfig"], "diskSizeGb": 200}}
    changes = planned_changes(found, unchanged, POOL, news)
    assert changes == [PlannedChange("nodeConfig.diskSizeGb", replaces=False)]
    assert action_of(changes, ()) == ("update", ["nodeConfig.diskSizeGb"])
    assert action_of(changes, ["nodeConfig"]) == ("replace", ["nodeConfig.diskSizeGb"])
    assert action_of(changes, ["node"])[0] == "update"


def test_computed_path_that_begins_to_replace_is_a_change() -> None:
    found = planned_changes(
        answer({"name": "UPDATE_REPLACE"}), answer({"name": "UPDATE"}), {"name": "a"}, {"name": "a"}
    )
    assert action_of(found, ()) == ("replace", ["name"])


def test_summary_counts_where_the_details_lack_it() -> None:
    found = planned_changes(answer({}, diffs=["a", "b"], replaces=["b"]), answer({}), {}, {})
    assert action_of(found, ()) == ("replace", ["b"])
    assert action_of(planned_changes(answer({}, diffs=["a"]), answer({}), {}, {}), ()) == ("update", ["a"])


def test_change_without_a_path_is_an_update() -> None:
    some = provider_pb2.DiffResponse(changes=provider_pb2.DiffResponse.DIFF_SOME)
    assert action_of(planned_changes(some, answer({}), {}, {}), ()) == ("update", [])
    assert action_of(planned_changes(some, some, {}, {}), ()) == ("same", [])


def test_value_at_follows_lists_and_quoted_keys() -> None:
    value = {**POOL, "labels": {"a.b/c": "x"}, "later": UNKNOWN}
    assert value_at(value, "nodeConfig.guestAccelerators[0].type") == "nvidia-l4"
    assert value_at(value, 'labels["a.b/c"]') == "x"
    assert value_at(value, "nodeConfig.guestAccelerators[1].type") is None
    assert value_at(value, "later.x") is None
    assert value_at(value, "later") == UNKNOWN
