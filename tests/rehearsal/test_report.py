"""Report of a rehearsal: cost, items without a price, leftovers, durations, and the errors of `pulumi up`."""

from __future__ import annotations

from pathlib import Path

import pytest

from commands.rehearse.folder import MAX_CHARACTERS, first_errors
from commands.rehearse.report import Report, format_duration, longest_chain, reversed_graph
from commands.rehearse.run import Rehearsal, Subject
from infra.local.settings import ClusterSettings
from simulation.cloud.model import new_state

FAILED = """\
 +  gcp:container:NodePool gpus-nodes creating (0s) error: QUOTA_EXCEEDED
Diagnostics:
  gcp:container:NodePool (gpus-nodes):
    error: gpus: QUOTA_EXCEEDED: 4 of NVIDIA_T4_GPUS
    error: gpus: QUOTA_EXCEEDED: 4 of NVIDIA_T4_GPUS
  pulumi:pulumi:Stack (trainyard-dev):
    error: update failed
    error: Program failed with an unhandled exception:
    Traceback (most recent call last):
      File "__main__.py", line 1, in <module>
    LookupError: no such recipe

Resources:
    + 3 created
"""


def test_report_lists_costs_by_part() -> None:
    report = Report(stack="dev", cost={"gpus": 2.5}, cost_total="$2.50 ($2.00 to $3.00)", unpriced=["gpus: 2 x disk"])
    text = report.to_text()
    assert (
        "Costs $2.50 ($2.00 to $3.00) an hour at the maximum number of nodes, plus the resources without a price:"
        in text
    )
    assert "2.50  gpus" in text
    assert "no price  gpus: 2 x disk" in text


def test_report_without_prices_has_no_costs() -> None:
    assert "Costs" not in Report(stack="dev").to_text()


def test_report_has_unknowns_before_its_result() -> None:
    found = Report(stack="dev", unchecked={"a:b:C": ["name"]}).to_text()
    *_, unknowns, result = found.split("\n\n")
    assert unknowns.startswith("A rehearsal cannot know:\n")
    assert unknowns.endswith("whether the provider accepts name of a:b:C")
    assert result.startswith("The rehearsal passed ")


def test_report_with_leftovers_does_not_pass() -> None:
    assert Report(stack="dev").passed
    left = Report(stack="dev", left=["gcp:serviceaccount/account:Account nodes"])
    assert not left.passed
    assert "gcp:serviceaccount/account:Account nodes" in left.to_text()
    assert not Report(stack="dev", problems=["`pulumi destroy` failed"]).passed


def test_report_of_a_failed_up_has_no_placement() -> None:
    report = Report(stack="dev", up_failed=True, resources={"a:b:C": ["one", "two"]}, problems=["`pulumi up` failed"])
    text = report.to_text()
    assert "Created before `pulumi up` failed: 2 cloud resources" in text
    for word in ("Would be", "would take", "Nodes:", "Pods:", "Quota"):
        assert word not in text


def test_errors_have_their_resource_and_no_duplicates() -> None:
    assert first_errors(FAILED) == [
        "gcp:container:NodePool (gpus-nodes): gpus: QUOTA_EXCEEDED: 4 of NVIDIA_T4_GPUS",
        "pulumi:pulumi:Stack (trainyard-dev): Program failed with an unhandled exception: LookupError: no such recipe",
    ]
    (long,) = first_errors(f"\nDiagnostics:\n  a:b:C (d):\n    error: {'x' * 1000}\n")
    assert len(long) == MAX_CHARACTERS + 3
    assert first_errors("") == []


class Stuck(Rehearsal):
    """Rehearsal whose Pulumi cannot destroy anything."""

    def _pulumi(self, *words: str, quiet: bool = False) -> bool:
        del words, quiet
        self._output = "\nDiagnostics:\n  gcp:container:Cluster (cluster):\n    error: has nodes\n"
        return False


def test_failed_destroy_reports_its_errors(tmp_path: Path) -> None:
    new_state(tmp_path)
    subject = Subject(stack="dev", project=tmp_path, settings=None, jobs={})
    report = Report(stack="dev")
    Stuck(subject=subject, folder=tmp_path, cluster=ClusterSettings(name="stuck"))._destroy(report)
    assert report.problems == ["`pulumi destroy` failed", "gcp:container:Cluster (cluster): has nodes"]


def test_longest_chain_adds_its_durations() -> None:
    waits = {"network": [], "subnet": ["network"], "account": [], "cluster": ["subnet", "account"]}
    seconds = {"network": 20, "subnet": 30, "account": 12, "cluster": 480}
    assert longest_chain(waits, seconds) == 530
    assert longest_chain(reversed_graph(waits), seconds) == 530


@pytest.mark.parametrize(("seconds", "text"), [(40, "40 s"), (480, "8 min"), (3900, "65 min"), (6000, "1 h 40 min")])
def test_format_duration_uses_seconds_minutes_or_hours(seconds: int, text: str) -> None:
    assert format_duration(seconds) == text
