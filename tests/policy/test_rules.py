"""Rules of the policy: good and bad inputs, pods of all kinds, levels, exceptions, and the stacks of this project."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml

from commands.review.recorded import ensure_operator_objects
from policy.catalogue import RULES, PolicyConfig
from policy.rules import Rule, Settings, findings, pods
from settings.problem import dotted
from stack.config import parse
from tests.components.cloud_program import graph
from tests.golden.manifests import EACH_KIND, engine, examples
from tests.policy.fixtures import FIXTURES
from tests.problems import problems_of
from tests.recording import Record

PROJECT = Path(__file__).parents[2]
EXAMPLES = examples()


def gke_networks(*ranges: str) -> dict[str, Any]:
    """Return the inputs of a GKE cluster with these authorized networks."""
    return {"masterAuthorizedNetworksConfig": {"cidrBlocks": [{"cidrBlock": each} for each in ranges]}}


def test_policy_rules_all_have_fixtures() -> None:
    assert [rule.name for rule in RULES] == list(FIXTURES)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_policy_rule_accepts_good_and_rejects_bad_inputs(rule: Rule) -> None:
    kind, good, bad, path = FIXTURES[rule.name]
    assert rule.applies(kind)
    assert rule.problem("some-resource", good) is None
    problem = rule.problem("some-resource", bad)
    assert problem is not None
    assert (problem.code, dotted(problem.path)) == (f"policy.{rule.name.replace('-', '_')}", path)
    assert problem.message


def test_policy_images_by_digest_accepts_images_that_setup_names_after_their_content() -> None:
    rule = next(rule for rule in RULES if rule.name == "images-by-digest")
    built = deepcopy(FIXTURES[rule.name][2])
    built["spec"]["template"]["spec"]["containers"][0]["image"] = "trainyard.local/trainer:0123456789abcdef"
    assert rule.problem("some-resource", built) is None


def security(non_root: bool | None) -> dict[str, object]:
    """Return the security context of a pod or container, with this `runAsNonRoot`, or empty for None."""
    return {"securityContext": {} if non_root is None else {"runAsNonRoot": non_root}}


@pytest.mark.parametrize(
    ("pod_value", "value", "init_value", "place"),
    [
        (True, None, None, ""),
        (None, True, True, ""),
        (True, False, None, "containers"),
        (None, True, None, "initContainers"),
        (None, None, True, "containers"),
    ],
)
def test_policy_non_root_checks_each_container(
    pod_value: bool | None, value: bool | None, init_value: bool | None, place: str
) -> None:
    rule = next(rule for rule in RULES if rule.name == "non-root")
    containers = {"containers": [security(value)], "initContainers": [security(init_value)]}
    problem = rule.problem("some-resource", {"spec": {**security(pod_value), **containers}})
    path = f"spec.{place}[0].securityContext.runAsNonRoot" if place else None
    assert (problem and dotted(problem.path)) == path


@pytest.mark.parametrize(
    ("is_open", "inputs"),
    [
        (True, {}),
        (False, {"privateClusterConfig": {"enablePrivateEndpoint": True}}),
        (False, {"masterAuthorizedNetworksConfig": {}}),
        (False, {"masterAuthorizedNetworksConfig": {"cidrBlocks": "(not known before the update)"}}),
        (True, gke_networks("0.0.0.0/1", "128.0.0.0/1")),
        (False, gke_networks("0.0.0.0/1", "128.0.0.0/2")),
    ],
)
def test_policy_gke_api_server_is_open_without_networks_or_if_they_cover_the_internet(
    is_open: bool, inputs: dict[str, Any]
) -> None:
    (rule,) = [each for each in RULES if each.name == "api-server-not-public"]
    assert (rule.problem("cluster", inputs) is not None) == is_open


@pytest.mark.parametrize(
    ("is_open", "ranges"),
    [
        (True, ["0.0.0.0/1", "128.0.0.0/1"]),
        (True, ["203.0.113.0/24", "::/1", "8000::/1"]),
        (False, ["0.0.0.0/1", "8000::/1"]),
        (False, "(not known before the update)"),
    ],
)
def test_policy_eks_api_server_is_open_if_ranges_cover_the_internet(is_open: bool, ranges: object) -> None:
    (rule,) = [each for each in RULES if each.name == "eks-api-server-not-public"]
    inputs = {"vpcConfig": {"endpointPublicAccess": True, "publicAccessCidrs": ranges}}
    assert (rule.problem("cluster", inputs) is not None) == is_open


@pytest.mark.parametrize("example", sorted(EACH_KIND))
def test_policy_job_rules_apply_to_pods_of_every_kind(example: str) -> None:
    spec, placement = EXAMPLES[example]
    types = {each.type for each in engine(spec, placement).records if any(pods(each.inputs))}
    assert types
    rules = [rule for rule in RULES if rule.name in ("limits-set", "no-host-access")]
    assert [(rule.name, each) for rule in rules for each in types if not rule.applies(each)] == []


def test_policy_levels_and_exceptions_of_stack_apply() -> None:
    kind, _, bad, _ = FIXTURES["limits-set"]
    broken = [Record(kind, "digits-job", bad)]
    (found,) = [each for each in findings(broken, RULES, Settings()) if each.rule.name == "limits-set"]
    assert found.fails
    softer = Settings(levels={"limits-set": "advisory"})
    assert not any(each.fails for each in findings(broken, RULES, softer))
    off = Settings(levels={"limits-set": "disabled"})
    assert [each for each in findings(broken, RULES, off) if each.rule.name == "limits-set"] == []
    excused = Settings(exceptions={("limits-set", "digits-job"): "measured without limits for a week"})
    (found,) = [each for each in findings(broken, RULES, excused) if each.rule.name == "limits-set"]
    assert (found.fails, found.excused) == (False, "measured without limits for a week")
    other = Settings(exceptions={("limits-set", "other"): "measured without limits for a week"})
    assert any(each.fails for each in findings(broken, RULES, other))


def test_policy_settings_with_unknown_rule_or_short_reason_are_rejected() -> None:
    values = {"platform": {"kind": "local", "nodes": 1}, "jobs": [], "policy": {"levels": {"limits": "advisory"}}}
    assert problems_of(values) == [("settings.key.policy_rule", "policy.levels.limits")]
    values["policy"] = {"exceptions": [{"rule": "limits-set", "resource": "a", "reason": "short"}]}
    assert problems_of(values) == [("settings.string_too_short", "policy.exceptions.0.reason")]


@pytest.mark.parametrize("stack", ["dev", "gke-v100", "gke-h200", "gke-tpu", "eks", "eks-p5"])
def test_policy_stacks_of_repository_follow_mandatory_rules(stack: str) -> None:
    values = yaml.safe_load((PROJECT / f"Pulumi.{stack}.yaml").read_text())["config"]
    platform, jobs = values["trainyard:platform"], values["trainyard:jobs"]
    ensure_operator_objects(parse({"platform": platform, "jobs": jobs}).operators)
    engine, _ = graph(platform, jobs)
    settings = PolicyConfig.model_validate(values.get("trainyard:policy", {})).settings()
    found = findings(engine.records, RULES, settings)
    assert [str(each.problem) for each in found if each.fails] == []
    applied = {rule.name for rule in RULES for record in engine.records if rule.applies(record.type)}
    assert len(applied) >= 10, "at least ten rules must apply to the stack"
