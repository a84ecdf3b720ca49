"""Report of changes for a reviewer: Markdown, JSON, drawing and page, from recordings of the program."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from commands.review.page import drawing, page
from commands.review.plan import Step
from commands.review.report import Report, as_json, comment, format_change, markdown
from stack.config import parse
from stack.language_estimate import language_estimates
from tests.commands import pull_requests
from tests.commands.pull_requests import TODAY
from tests.unit.stack_settings import KUBECONFIG

POOL = {"name": "cpus", "machine_type": "e2-standard-4", "nodes": 2}
JOB = {"name": "digits", "recipe": "digits", "hosts": 2}


def values(**changes: Any) -> dict[str, Any]:
    """Return a GKE stack with one job and these changes of the pool, the platform and top-level keys."""
    platform = {
        "kind": "gke",
        "project": "some-project",
        "pools": [{**POOL, **changes.pop("pool", {})}],
        **changes.pop("platform", {}),
    }
    return {"platform": platform, "jobs": [JOB], **changes}


def report(before: dict[str, Any], after: dict[str, Any], running: dict[str, list[str]] | None = None) -> Report:
    """Return the report of a change of settings, with the running jobs of each pool."""
    return pull_requests.report(after, before=before, running=running)


def test_report_renamed_pool_with_running_job_fails_and_lists_deletion_first() -> None:
    found = report(values(), values(pool={"name": "other"}), running={"cpus": ["digits"]})
    text = markdown(found, TODAY)
    assert "**DELETE** 1: 1 NodePool\n- `cpus-nodes`" in text, "a component must not be counted"
    assert text.index("**DELETE") < text.index("Create")
    assert "would delete pool cpus, which runs digits" in text
    assert "fails" in text.splitlines()[0]
    allowed = report(
        values(), values(pool={"name": "other"}, policy={"may_replace": ["cpus"]}), running={"cpus": ["digits"]}
    )
    assert allowed.failures == []


EKS = {"kind": "eks", "kubernetes_version": "1.35", "check_availability": False}


def eks_report(change: dict[str, Any], running: dict[str, list[str]] | None = None) -> Report:
    """Return the report of a change of an EKS stack with a pool of CPUs."""
    pool = {"name": "cpus", "machine_type": "c7i.2xlarge", "nodes": 2}
    before = {"platform": {**EKS, "pools": [pool]}, "jobs": []}
    others = {key: value for key, value in change.items() if key != "pool"}
    changed = {**EKS, "pools": [{**pool, **change.get("pool", {})}], **others}
    return report(before, {**before, "platform": changed}, running)


@pytest.mark.parametrize(
    "change", [{"pool": {"disk_size_gb": 200}}, {"kubernetes_version": "1.36"}], ids=["disk", "kubernetes_version"]
)
def test_report_recycled_nodes_with_running_job_fail_with_pool_name(change: dict[str, Any]) -> None:
    found = eks_report(change, running={"cpus": ["digits"]})
    line = next(each for each in markdown(found, TODAY).splitlines() if each.startswith("- `cpus-nodes`"))
    assert "all its nodes are drained and replaced" in line
    (failure,) = found.failures
    assert "would recycle the nodes of pool cpus" in failure


def test_report_grown_pool_with_running_job_passes() -> None:
    grown = eks_report({"pool": {"nodes": 3}}, running={"cpus": ["digits"]})
    assert grown.failures == []
    assert "drained" not in markdown(grown, TODAY)


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"zones": ["us-west-2a", "us-west-2b"]}, "platform.zones"),
        ({"network": {"vpc": "10.1.0.0/16"}}, "platform.network.vpc"),
    ],
    ids=["zones", "network.vpc"],
)
def test_report_eks_change_rejected_by_aws_fails_with_key_and_advice(change: dict[str, Any], key: str) -> None:
    (failure,) = eks_report(change).failures
    assert key in failure
    assert "`make down`" in failure


def test_report_eks_upgrade_without_running_job_passes() -> None:
    assert eks_report({"kubernetes_version": "1.36"}).failures == []


def test_markdown_unused_policy_exception_is_listed() -> None:
    rule, reason = "deletion-protection", "a stack of an afternoon"
    exceptions = [{"rule": rule, "resource": name, "reason": reason} for name in ("cluster-control-plane", "nope")]
    text = markdown(report(values(), values(policy={"exceptions": exceptions})), TODAY)
    unused = "does not break this rule, so the exception is unused; correct or remove the exception"
    assert f"- {rule}: nope: {unused}" in text
    assert text.count("the exception is unused") == 1
    assert f"(excused: {reason})" in text


def test_report_cost_above_budget_fails() -> None:
    (failure,) = report(values(), values(budget=0.1)).failures
    assert "more than `budget: 0.1`" in failure


def test_report_item_without_price_is_listed_and_fails_budget() -> None:
    pool = {"name": "h200", "machine_type": "p5e.48xlarge", "nodes": 1}
    settings = {"platform": {**EKS, "pools": [pool]}, "jobs": [], "budget": 100_000}
    found = report(settings, settings)
    text = markdown(found, TODAY)
    assert "No price is known for h200: 1 x p5e.48xlarge." in text
    assert "+ resources without a price" in text
    (failure,) = found.failures
    assert "has items without a price" in failure
    assert "remove the budget" in failure


def test_as_json_failed_report_has_passes_false_and_findings() -> None:
    found = as_json(report(values(), values(budget=0.1)), TODAY)
    assert found["passes"] is False
    assert found["source"] == "recording"
    assert found["price"]["unpriced"] == []
    assert ("policy.deletion_protection", "deletionProtection") in [
        (each["code"], each["path"]) for each in found["policy"]
    ]


def test_as_json_price_lines_add_up_to_the_total_and_have_sources() -> None:
    found = json.loads(json.dumps(as_json(report(values(), values()), TODAY)))["price"]
    assert sum(each["cost"]["amount"] for each in found["lines"]) == pytest.approx(found["total"]["amount"])
    assert all(each["unit_price"]["source"].startswith("https://") for each in found["lines"])
    assert all(each["unit_price"]["day"] <= TODAY.isoformat() for each in found["lines"])


def test_as_json_item_without_price_has_null_cost() -> None:
    pool = {"name": "h200", "machine_type": "p5e.48xlarge", "nodes": 1}
    settings = {"platform": {**EKS, "pools": [pool]}, "jobs": []}
    lines = as_json(report(settings, settings), TODAY)["price"]["lines"]
    (unpriced,) = (each for each in lines if each["item"] == "p5e.48xlarge")
    assert (unpriced["part"], unpriced["cost"], unpriced["unit_price"]) == ("h200", None, None)


def test_markdown_changes_from_recordings_are_marked_uncertain() -> None:
    step = Step(action="update", type="t:t:T", name="a", inputs={})
    config = parse(values())
    found = Report(stack="s", after=config, before=config, steps=[step], is_from_engine=False, findings=[], running={})
    assert "may turn out to be" in markdown(found, TODAY)
    assert "may turn out to be" not in markdown(replace(found, is_from_engine=True), TODAY)


def test_report_fails_with_a_failed_rehearsal() -> None:
    config = parse(values())
    rehearsal = {"pods": [{"node": ""}], "nodes": [], "problems": ["pod a has no node"], "left": ["Bucket b"]}
    found = Report(
        stack="s", after=config, before=config, steps=[], is_from_engine=False, findings=[], running={},
        rehearsal=rehearsal,
    )  # fmt: skip
    assert found.failures == ["rehearsal: pod a has no node", "rehearsal: left: Bucket b"]
    text = markdown(found, TODAY)
    assert text.startswith("### Stack `s` fails\n")
    assert text.endswith("Rehearsal: **failed**, 0 of 1 pod placed: pod a has no node; left: Bucket b.\n")
    passed = replace(found, rehearsal={**rehearsal, "problems": [], "left": []})
    assert passed.failures == []


def test_comment_longer_than_github_allows_is_cut_at_a_line() -> None:
    short = "one line\n"
    assert comment(short) == short
    long = "".join(f"- `resource-{count}`\n" for count in range(10_000))
    found = comment(long)
    assert len(found) <= 65_536
    assert found.startswith("- `resource-0`\n- `resource-1`\n")
    assert found.splitlines()[-3].startswith("- `resource-"), "the report must be cut between lines"
    assert "does not fit" in found.splitlines()[-1]


SECRET = {"4dabf18193072939515e22adb298388d": "1b47061264138c4ac30d75fd1eb44270", "value": "canary"}


@pytest.mark.parametrize(
    ("path", "before", "after", "expected"),
    [
        ("nodeCount", {"nodeCount": 2.0}, {"nodeCount": 4}, "nodeCount `2` -> `4`"),
        ("a.b", {"a": {"b": "x", "c": 1}}, {"a": {"b": "y", "c": 2}}, "a.b `x` -> `y`"),
        ("a", {}, {"a": True}, "a nothing -> `true`"),
        ("a", {"a": ""}, {}, 'a `""` -> nothing'),
        ("a", {"a": [1, 2]}, {"a": [1, 3]}, "a[1] `2` -> `3`"),
        (
            "env",
            {"env": [{"name": "A", "value": "1"}]},
            {"env": [{"name": "B", "value": "2"}, {"name": "A", "value": "1"}]},
            "env[B].name nothing -> `B`, env[B].value nothing -> `2`",
        ),
        (
            "a",
            {"a": [1, 2, 3, 4]},
            {"a": [5, 6, 7, 8]},
            "a[0] `1` -> `5`, a[1] `2` -> `6`, a[2] `3` -> `7`, and 1 more",
        ),
        ("a", {"a": "x" * 30 + "y" * 30 + "z" * 30}, {}, "a `" + "x" * 30 + "..." + "z" * 30 + "` -> nothing"),
        ("a", {"a": "one"}, {"a": "`two`"}, "a `one` -> `'two'`"),
        ("data", {"data": {"f": "1\n2"}}, {"data": {"f": "1\n3"}}, "data"),
        ("provider aws", {}, {}, "provider aws"),
    ],
)
def test_format_change_shows_old_and_new_value(
    path: str, before: dict[str, Any], after: dict[str, Any], expected: str
) -> None:
    assert format_change(path, before, after) == expected


@pytest.mark.parametrize("secret", [SECRET, "[secret]"])
def test_format_change_secret_value_is_omitted(secret: Any) -> None:
    assert format_change("a", {"a": {"b": secret}}, {"a": {"b": "other"}}) == "a"
    assert format_change("a", {"a": {"b": "other"}}, {"a": {"b": secret}}) == "a"


def test_format_change_unknown_value_is_omitted() -> None:
    assert format_change("a", {"a": "b"}, {"a": "04da6b54-80e4-46f7-96ec-b56ff0331ba9"}) == "a"


def test_report_of_language_model_has_memory_speed_and_price_with_source() -> None:
    language = {
        "name": "llm",
        "recipe": "language",
        "accelerator": "nvidia-h200-141gb",
        "accelerators_per_host": 8,
        "hosts": 2,
        "resources": {"cpu": 100, "memory": "800Gi"},
        "flags": {"preset": "8b", "context": 8192, "batch_size": 1, "amp": True, "parallelism": "shard=8"},
    }
    pool = {"name": "h200", "machine_type": "a3-ultragpu-8g", "nodes": 2, "capacity": "flex-start"}
    stack = {
        "platform": {"kind": "gke", "project": "some-project", "zone": "us-central1-b", "pools": [pool]},
        "jobs": [language],
    }
    found = report(stack, stack)
    text = markdown(found, TODAY)
    assert "- llm: 6,981.9 million parameters. Memory of each of 16 devices (estimate): " in text
    assert " of 141 GiB (weights 3.3, gradients 3.3, optimizer 6.5, copies " in text
    assert "29% to 35% of the GPU's peak, as in [Llama 3.1 8B" in text
    assert "This is an estimate, not a measurement" in text
    assert "https://github.com/pytorch/torchtitan/" in text
    (estimate,) = as_json(found, TODAY)["language"]
    slow, fast = estimate["tokens_per_second"]
    assert 5000 < slow < fast < 8000
    low, high = estimate["usd_per_billion_tokens"]
    hourly = found.after.cloud.cost_estimate().by_part()["h200"].amount
    assert low == pytest.approx(hourly * 1e9 / 3600 / (16 * fast), rel=1e-4)
    assert high == pytest.approx(hourly * 1e9 / 3600 / (16 * slow), rel=1e-4)


EXISTING = {"kind": "kubeconfig", "kubeconfig": str(KUBECONFIG), "context": "kind", "image": "example.com/trainer:1"}


def test_language_estimate_has_no_speed_in_32_bits_and_no_price_on_an_existing_cluster() -> None:
    language = {"name": "llm", "recipe": "language", "accelerator": "nvidia-l4", "flags": {"preset": "10m"}}
    (full,) = language_estimates(parse({"platform": EXISTING, "jobs": [language]}))
    assert (full.tokens_per_second, full.usd_per_billion_tokens) == (None, None)
    language["flags"] = {"preset": "10m", "amp": True}
    (amp,) = language_estimates(parse({"platform": EXISTING, "jobs": [language]}))
    assert amp.tokens_per_second
    assert amp.usd_per_billion_tokens is None
    assert "llm: no price is known, at " in amp.lines()[1]


def test_drawing_has_each_pool_with_its_change_and_its_jobs() -> None:
    pools = [{**POOL, "nodes": 4}, {"name": "gpus"}]
    found = report(values(), values(platform={"pools": pools}, pool={}))
    lines = [each.strip() for each in drawing(found.after, found.steps)]
    assert 'subgraph network["network gke-dist"]' in lines
    assert 'cluster0["cluster gke-dist"]' in lines
    named = {each.split('"')[1]: each.partition("[")[0] for each in lines if each.startswith("pool")}
    assert f'{named["pool cpus<br>4 x e2-standard-4"]}["pool cpus<br>4 x e2-standard-4"]:::update' in lines
    assert f'{named["pool gpus<br>2 x n1-standard-4"]}["pool gpus<br>2 x n1-standard-4"]:::create' in lines
    assert f"job0 --> {named['pool cpus<br>4 x e2-standard-4']}" in lines
    assert not any(each.startswith(f"job0 --> {named['pool gpus<br>2 x n1-standard-4']}") for each in lines)


def test_drawing_of_removed_pool_shows_it_as_deleted() -> None:
    before = values(platform={"pools": [POOL, {"name": "gpus"}]})
    found = report(before, values())
    assert any('"pool gpus<br>2 x n1-standard-4"]:::delete' in each for each in drawing(found.after, found.steps))


def test_existing_cluster_has_no_drawing() -> None:
    existing = {"platform": EXISTING, "jobs": [JOB]}
    found = report(existing, existing)
    assert drawing(found.after, found.steps) == []


def test_page_shows_jobs_in_their_pool_with_its_change() -> None:
    found = report(values(), values(pool={"nodes": 4}))
    text = page("test", markdown(found, TODAY), found.after, found.steps)
    pool = text[text.index('<div class="box update">pool cpus') :].partition("</div>")[0]
    assert "<small>4 x e2-standard-4</small>" in pool
    assert "digits: 2 hosts" in pool
    assert text.count("<table>") == 1
    assert text.index("Stack <code>dev</code> passes") < text.index("network gke-dist") < text.index("Update 1")


def test_page_of_a_report_with_html_shows_it_as_text() -> None:
    found = report(values(), values())
    text = page("test", "### Stack\n\n<script>alert(1)</script>", found.after, found.steps)
    assert "<script>" not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
