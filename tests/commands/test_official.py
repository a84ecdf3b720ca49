"""Review by a scripted plugin: rejected inputs, differing plans, computed values, warnings, missing plugins."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from pulumi.runtime.proto import provider_pb2

from commands.review import plugin
from commands.review.official import (
    PlannedChange,
    PluginReview,
    _with_original_values,
    action_of,
    planned_changes,
    review_by_plugins,
)
from commands.review.plan import difference, value_at
from commands.review.recorded import Record, record_program
from commands.review.report import as_json, markdown
from simulation.cloud.values import UNKNOWN
from tests.commands.pull_requests import STACK, TODAY, changed_stack, report

ROOT = Path(__file__).resolve().parents[2]
PLUGIN_SCRIPT = """#!/bin/sh
PYTHONPATH={root} exec {root}/.venv/bin/python -m tests.commands.scripted_plugin {instructions} "$@"
"""
VERSION = metadata.version("pulumi-gcp")


class PulumiHome:
    """Home folder of Pulumi with the scripted plugin in place of Google's."""

    def __init__(self, folder: Path) -> None:
        self.seen = folder / "seen.json"
        self._instructions = folder / "instructions.json"
        program = folder / "plugins" / f"resource-gcp-v{VERSION}" / "pulumi-resource-gcp"
        program.parent.mkdir(parents=True)
        program.write_text(PLUGIN_SCRIPT.format(root=ROOT, instructions=self._instructions), encoding="utf-8")
        program.chmod(0o755)

    def review(self, after: dict[str, Any], **instructions: Any) -> PluginReview:
        """Return the review of a change of the stack. The scripted plugin follows these instructions."""
        self._instructions.write_text(json.dumps({"seen": str(self.seen), **instructions}), encoding="utf-8")
        olds, news = record_program(STACK, ()), record_program(after, ())
        return review_by_plugins(olds, news, difference(olds, news))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PulumiHome:
    """Return the home folder of Pulumi in this test."""
    monkeypatch.setenv("PULUMI_HOME", str(tmp_path))
    return PulumiHome(tmp_path)


def test_review_with_an_equal_plan_of_the_plugin_passes(home: PulumiHome) -> None:
    found = home.review(changed_stack({"nodes": 4}))
    assert found.failures == []
    assert list(found.asked) == [f"gcp {VERSION}"]
    assert found.asked[f"gcp {VERSION}"] > 20
    assert found.lines()[-1].endswith("resources as Trainyard did.")


def test_review_with_a_rejected_input_fails(home: PulumiHome) -> None:
    wrong = ["upgradeSettings", "expected strategy to be one of SURGE, BLUE_GREEN"]
    found = home.review(changed_stack({"nodes": 4}), reject={"gpus-nodes": wrong})
    [line] = found.failures
    assert line == f"a defect of Trainyard: gpus-nodes: gcp rejects {wrong[0]}: {wrong[1]}"


def test_review_with_a_different_plan_of_the_plugin_fails(home: PulumiHome) -> None:
    found = home.review(changed_stack({"nodes": 4}), replace={"gpus-nodes": ["autoscaling"]})
    [line] = found.differences
    assert line == f"gpus-nodes: gcp {VERSION} plans replace (autoscaling), Trainyard update"


def test_review_ignores_changes_of_computed_values(home: PulumiHome) -> None:
    computed = {"cluster-control-plane": ["masterAuth"], "network-nat": ["natIps"], "gpus-nodes": ["placementPolicy"]}
    found = home.review(changed_stack({"nodes": 4}), compute=computed, compute_replaces=["placementPolicy"])
    assert found.failures == []


def test_review_of_a_changed_input_that_is_also_computed_fails(home: PulumiHome) -> None:
    found = home.review(STACK, compute={"gpus-nodes": ["autoscaling"]})
    assert found.failures == []
    found = home.review(
        changed_stack({"nodes": 4}), compute={"gpus-nodes": ["autoscaling"]}, compute_replaces=["autoscaling"]
    )
    [line] = found.differences
    assert line == f"gpus-nodes: gcp {VERSION} plans replace (autoscaling), Trainyard update"


def test_review_of_a_replaced_resource_compares_its_dependents(home: PulumiHome) -> None:
    after = {**STACK, "platform": {**STACK["platform"], "network": {"nodes": "10.200.0.0/20"}}}
    replaced = {"network-subnet": ["ipCidrRange"], "cluster-control-plane": ["subnetwork"], "gpus-nodes": ["cluster"]}
    found = home.review(after, replace=replaced)
    # Trainyard also replaces these dependents. The scripted plugin only updates them.
    assert sorted(found.differences) == [
        f"jobs-user: gcp {VERSION} plans update (member), Trainyard replace",
        f"system-nodes: gcp {VERSION} plans update (cluster), Trainyard replace",
    ]


def test_review_with_a_crashing_plugin_fails_with_its_panic(home: PulumiHome) -> None:
    after = {**STACK, "platform": {**STACK["platform"], "name": "other"}}
    replaced = {"cluster-control-plane": ["name"]}
    found = home.review(after, replace=replaced, crash_at_unknown="cluster")
    assert any(
        "the plugin crashes: Diff" in line and "panic: can't use ElementIterator" in line for line in found.failures
    )


def test_plugin_environment_has_no_credentials_and_a_closed_proxy(
    home: PulumiHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("GOOGLE_CREDENTIALS", "GOOGLE_APPLICATION_CREDENTIALS", "AWS_ACCESS_KEY_ID", "CLOUDSDK_CONFIG"):
        monkeypatch.setenv(name, "secret")
    home.review(changed_stack({"nodes": 4}))
    seen = json.loads(home.seen.read_text(encoding="utf-8"))
    assert "secret" not in seen["environment"].values()
    assert seen["environment"]["HTTPS_PROXY"] == plugin.CLOSED_PROXY
    assert seen["environment"]["HOME"] != str(Path.home())
    assert seen["variables"]["gcp:config:project"] == "some-project"
    assert seen["variables"]["gcp:config:accessToken"] == "none"


def test_review_with_a_warning_shows_it_and_passes(home: PulumiHome) -> None:
    found = home.review(changed_stack({"nodes": 4}), warn="this field is deprecated")
    assert found.warnings == ("this field is deprecated",)
    assert found.failures == []


def test_review_without_the_plugin_reports_it_and_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PULUMI_HOME", str(tmp_path))
    monkeypatch.setattr(plugin, "RELEASE_URL", "https://plugins.invalid")
    monkeypatch.setattr(plugin, "has_cli", lambda: True)
    olds = record_program(STACK, ())
    found = review_by_plugins(olds, olds, ())
    [line] = found.missing
    assert line.startswith(f"gcp {VERSION}: it cannot be downloaded (https://plugins.invalid: ")
    assert found.failures == []
    assert "**Not checked** by gcp" in "\n".join(found.lines())


def test_review_of_a_stack_without_a_cloud_uses_no_plugin() -> None:
    assert review_by_plugins([], [Record("kubernetes:core/v1:Namespace", "training", {})], ()).lines() == []


def test_report_with_a_different_plan_fails_and_shows_both_plans() -> None:
    found = replace(
        report(changed_stack({"nodes": 4})),
        plugins=PluginReview(asked={"gcp 1": 3}, differences=["gpus-nodes: gcp 1 plans replace (x), Trainyard update"]),
    )
    text = markdown(found, TODAY)
    assert "### Stack `dev` fails" in text
    assert "a defect of Trainyard: gpus-nodes: gcp 1 plans replace (x), Trainyard update" in text
    assert "- gcp 1 checked and planned 3 resources." in text
    assert as_json(found, TODAY)["passes"] is False


def test_with_original_values_replaces_placeholders_of_outputs() -> None:
    hidden = {"network": UNKNOWN, "name": "x", "list": [{"a": UNKNOWN}]}
    given = {"network": "network-vpc-id", "name": "x", "list": [{"a": "b"}]}
    assert _with_original_values(hidden, given) == given


KINDS = provider_pb2.PropertyDiff.Kind
POOL = {"nodeConfig": {"diskSizeGb": 100, "guestAccelerators": [{"type": "nvidia-l4"}]}}
COMPUTED_PATHS = {"nodeConfig.imageType": "UPDATE", "placementPolicy.policyName": "UPDATE_REPLACE"}


def answer(detailed: dict[str, str], **summary: Any) -> provider_pb2.DiffResponse:
    """Return a response with these paths and their kinds of change."""
    paths = {path: provider_pb2.PropertyDiff(kind=KINDS.Value(kind)) for path, kind in detailed.items()}
    some = provider_pb2.DiffResponse.DIFF_SOME if detailed or summary else provider_pb2.DiffResponse.DIFF_NONE
    return provider_pb2.DiffResponse(changes=some, detailedDiff=paths, **summary)


def test_planned_changes_of_unchanged_inputs_are_empty() -> None:
    computed = answer(COMPUTED_PATHS, diffs=["nodeConfig", "placementPolicy"], replaces=["placementPolicy"])
    assert planned_changes(computed, computed, POOL, POOL) == []


def test_planned_changes_of_a_changed_input_exclude_computed_paths() -> None:
    unchanged = answer(COMPUTED_PATHS, diffs=["nodeConfig", "placementPolicy"], replaces=["placementPolicy"])
    found = answer(
        COMPUTED_PATHS | {"nodeConfig.diskSizeGb": "UPDATE"}, diffs=["nodeConfig"], replaces=["placementPolicy"]
    )
    news = {"nodeConfig": {**POOL["nodeConfig"], "diskSizeGb": 200}}
    changes = planned_changes(found, unchanged, POOL, news)
    assert changes == [PlannedChange("nodeConfig.diskSizeGb", replaces=False)]
    assert action_of(changes, ()) == ("update", ["nodeConfig.diskSizeGb"])
    assert action_of(changes, ["nodeConfig"]) == ("replace", ["nodeConfig.diskSizeGb"])
    assert action_of(changes, ["node"])[0] == "update"


def test_planned_changes_of_a_computed_path_that_now_replaces_include_the_path() -> None:
    found = planned_changes(
        answer({"name": "UPDATE_REPLACE"}), answer({"name": "UPDATE"}), {"name": "a"}, {"name": "a"}
    )
    assert action_of(found, ()) == ("replace", ["name"])


def test_planned_changes_without_details_use_the_summary() -> None:
    found = planned_changes(answer({}, diffs=["a", "b"], replaces=["b"]), answer({}), {}, {})
    assert action_of(found, ()) == ("replace", ["b"])
    assert action_of(planned_changes(answer({}, diffs=["a"]), answer({}), {}, {}), ()) == ("update", ["a"])


def test_planned_changes_without_a_path_give_an_update() -> None:
    some = provider_pb2.DiffResponse(changes=provider_pb2.DiffResponse.DIFF_SOME)
    assert action_of(planned_changes(some, answer({}), {}, {}), ()) == ("update", [])
    assert action_of(planned_changes(some, some, {}, {}), ()) == ("same", [])


def test_value_at_a_path_follows_lists_and_quoted_keys() -> None:
    value = {**POOL, "labels": {"a.b/c": "x"}, "later": UNKNOWN}
    assert value_at(value, "nodeConfig.guestAccelerators[0].type") == "nvidia-l4"
    assert value_at(value, 'labels["a.b/c"]') == "x"
    assert value_at(value, "nodeConfig.guestAccelerators[1].type") is None
    assert value_at(value, "later.x") is None
    assert value_at(value, "later") == UNKNOWN
