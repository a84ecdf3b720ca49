"""Page of a rehearsal: its result, pods on nodes, pods without a node, cost and resources."""

from __future__ import annotations

from dataclasses import replace

from commands.rehearse.report import MAX_NODES, Node, Report, page
from simulation.placement import Pod

POD = Pod(
    name="digits-0",
    namespace="training",
    job="digits",
    node="gpus-0",
    phase="Running",
    accelerators={"nvidia.com/gpu": "2"},
    environment={},
    why_pending="",
    provisioning_request="",
)


def nodes(count: int) -> list[Node]:
    """Return the nodes of a pool."""
    kind = {"pool": "gpus", "machine": "n1-standard-4", "zone": "us-central1-a"}
    return [Node(name=f"gpus-{number}", accelerators={"nvidia.com/gpu": "2"}, **kind) for number in range(count)]


def test_page_shows_each_pod_in_the_box_of_its_node() -> None:
    report = Report(stack="dev", nodes=nodes(2), pods=[POD, replace(POD, name="digits-1", node="gpus-1")])
    first, second = page(report).split('<div class="node">')[1:]
    assert ">digits-0, 2 x nvidia.com/gpu<" in first
    assert ">digits-1, 2 x nvidia.com/gpu<" in second
    assert '<b class="good">passed</b>' in page(report)
    assert "2 x n1-standard-4 in us-central1-a" in page(report)


def test_page_shows_pods_without_a_node_and_problems_first() -> None:
    waiting = replace(POD, node="", why_pending="0/2 nodes are available: <none>")
    text = page(
        Report(stack="dev", nodes=nodes(1), pods=[waiting], problems=["digits did not start"], left=["a bucket"])
    )
    assert "digits-0 has no node: 0/2 nodes are available: &lt;none&gt;" in text
    assert text.index("digits did not start") < text.index("Pods on nodes")
    assert "left after destroy: a bucket" in text
    assert '<b class="bad">failed</b>' in text
    assert "<li>how long the cloud takes" in text


def test_page_counts_nodes_that_it_does_not_draw() -> None:
    text = page(Report(stack="dev", nodes=nodes(MAX_NODES + 36)))
    assert text.count('<div class="node">') == MAX_NODES
    assert "and 36 more nodes" in text


def test_page_has_a_cost_bar_for_each_part_and_resources_by_group() -> None:
    resources = {"gcp:container/nodePool:NodePool": ["a", "b"], "gcp:storage/bucket:Bucket": ["c"]}
    cost = {"cluster": 0.1, "gpus": 2.5}
    text = page(Report(stack="dev", cost=cost, cost_total="$2.60", unpriced=["a disk"], resources=resources))
    assert text.index("<th>gpus</th>") < text.index("<th>cluster</th>")
    assert "width: 4.0%" in text
    assert "no price is known: a disk" in text
    assert "<tr><th>cluster and pools</th><td>2 NodePool</td></tr>" in text
    assert "<tr><th>bucket</th><td>1 Bucket</td></tr>" in text
