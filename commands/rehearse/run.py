"""A complete rehearsal: `up` against simulated clouds, a look at nodes and pods, `destroy`."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from commands.adopt_orphans import adopt, looked_up
from commands.checkpoint import project_of, repair
from commands.down import JOBS
from commands.interrupts import held
from commands.inventory.ownership import ownership
from commands.inventory.simulated import simulated
from commands.orphans import end_orphans
from commands.rehearse import folder as folders
from commands.rehearse.checkpoints import look_at_buckets, write_checkpoints
from commands.rehearse.diagnostics import errors, run
from commands.rehearse.duration import longest_chain, turned
from commands.rehearse.report import Node, Report
from commands.stack import settings_without_salt
from commands.verify_empty import verify
from infra.cloud import ProvisionedCloud
from infra.local import leftovers
from infra.local.settings import ClusterSettings
from simulation import autoscaler, placement
from simulation.cloud.fact_check import unchecked
from simulation.cloud.fact_table import fact_table
from simulation.cloud.kinds import is_known_type, kind_of
from simulation.cloud.lifecycle import quota_used
from simulation.cloud.state import CloudState, Properties, new_state, read_state
from simulation.cluster import control_plane
from simulation.cluster.effects import BUCKETS
from simulation.object_store import running

SETTLE_LIMIT = 120.0
"""Maximum wait, in seconds, for nodes and pods to stop changing."""
SETTLE_SECONDS_A_POD = 0.3
"""Seconds added to SETTLE_LIMIT for each pod of a job."""


@dataclass(frozen=True, kw_only=True)
class Subject:
    """The stack to rehearse."""

    stack: str
    project: Path
    """Folder of the Pulumi program."""
    settings: Path | None
    """The stack's settings file; None for a program without settings."""
    jobs: Mapping[str, int]
    """Minimum number of pods of each job."""
    queued: frozenset[str] = frozenset()
    """Jobs that wait for admission by a queue."""
    cloud: ProvisionedCloud | None = None
    """Cloud of the stack; None for a program without settings."""


@dataclass(kw_only=True)
class Rehearsal:
    """A rehearsal in its own folder."""

    subject: Subject
    folder: Path
    cluster: ClusterSettings
    fault: str = ""
    quotas: Mapping[str, int] | None = None
    verbose: bool = True
    _printed: str = field(default="", init=False)
    """Output of Pulumi's last command."""

    def run(self) -> Report:
        """Rehearse the stack. Always remove the cluster and the folder at the end."""
        with folders.only_one(self.folder):
            return self._run()

    def _run(self) -> Report:
        begun = time.monotonic()
        report = Report(stack=self.subject.stack, fault=self.fault)
        if self.subject.cloud:
            price = self.subject.cloud.cost_estimate()
            report.cost = {part: money.amount for part, money in price.by_part().items()}
            report.cost_total, report.unpriced = str(price.total), list(price.unpriced)
        if self.folder.exists():
            shutil.rmtree(self.folder)
        self.folder.mkdir(mode=0o700, parents=True)
        try:
            with self._object_store() as store:
                settings = {
                    **control_plane.prepare(self.folder, self.cluster),
                    **store,
                    "quotas": dict(self.quotas or {}),
                }
                new_state(self.folder, fault=self.fault, settings=settings)
                if self._up(report):
                    self._look(report)
                else:
                    report.up_failed, report.resources = True, _by_type(read_state(self.folder))
                self._destroy(report)
        except KeyboardInterrupt:
            self._say("rehearsal: stopping; removing the simulated cloud and its cluster")
            raise
        finally:
            with held():
                end_orphans(folders.run_mark(self.folder))
                control_plane.stop(self.cluster)
                report.left += leftovers.find(self.cluster.folder, self.cluster.cgroup)
                shutil.rmtree(self.folder)
        report.wall_seconds = time.monotonic() - begun
        return report

    def _object_store(self) -> AbstractContextManager[Properties]:
        cloud = self.subject.cloud
        return running(cloud.scheme) if cloud else nullcontext({})

    def _up(self, report: Report) -> bool:
        if self.subject.settings:
            folders.write_settings(self.subject.settings, self._settings)
        self._pulumi("stack", "init", self.subject.stack, quiet=True)
        done = self._pulumi("up", "--yes", "--skip-preview")
        # A leak fault happens only during `destroy`.
        if done and (not read_state(self.folder).fault or self.fault.startswith("leak:")):
            return True
        if self.fault and done:
            report.problems.append(f"the fault {self.fault} did not happen: no operation matches it")
            return True
        if self.fault:
            self._say(f"the fault {self.fault} happened; running `pulumi up` again")
            done = self._recover() and self._pulumi("up", "--yes", "--skip-preview")
        if not done:
            report.problems.append("`pulumi up` failed" + (" again after the fault" if self.fault else ""))
            report.problems += errors(self._printed)
        return done

    def _recover(self) -> bool:
        """Repair the stack's state after a failed update, as `make up` does before its own update."""
        repair(folders.backend_folder(self.folder), project_of(self.subject.project), self.subject.stack)
        self._pulumi("cancel", "--yes", quiet=True)
        try:
            cloud = self.subject.cloud
            find = looked_up(cloud, simulated(self.folder)) if cloud else None
            lost = adopt(self._exported(), self._pulumi, find)
        except RuntimeError as error:
            self._say(str(error))
            return False
        if lost:
            self._say(f"cannot tell whether the cloud created these: {', '.join(lost)}")
        return True

    def _look(self, report: Report) -> None:
        state = read_state(self.folder)
        report.resources = _by_type(state)
        report.unchecked = _unchecked(state)
        report.without_rules = sorted({each.type for each in state.resources.values() if not is_known_type(each.type)})
        report.quota = quota_used(state)
        self._durations(report, state)
        if "cluster_of" not in state.settings:
            return
        found = self._settled(report)
        report.pods = found
        report.nodes = [_node(each) for each in placement.nodes(self.cluster)]
        report.quota = quota_used(read_state(self.folder))
        for pod in found:
            if pod.phase == "Pending":
                report.problems.append(
                    f"pod {pod.namespace}/{pod.name} stays pending: {pod.why_pending or 'no reason is known'}"
                )
        for job, count in self.subject.jobs.items():
            have = sum(pod.job == job for pod in found)
            if have < count:
                report.problems.append(f"job {job} has {have} pods of {count}: its controller created no more")
        write_checkpoints(read_state(self.folder), report, found)
        placement.let_jobs_complete(self.cluster, placement.pods(self.cluster))

    def _settled(self, report: Report) -> list[placement.Pod]:
        """Return the pods of all jobs once they no longer change.

        If jobs wait in a queue, end the jobs that run, so that the queue admits the next jobs.
        """
        limit = SETTLE_LIMIT + SETTLE_SECONDS_A_POD * sum(self.subject.jobs.values())
        seen: dict[str, placement.Pod] = {}
        expected, waiting = dict(self.subject.jobs), set[str]()
        while True:
            found = placement.settle(
                self.cluster,
                expected,
                self._grown,
                limit,
                (lambda: placement.queued_jobs(self.cluster)) if self.subject.queued else set,
            )
            seen |= {pod.name: pod for pod in found if pod.name not in seen or not seen[pod.name].node}
            before = placement.queued_jobs(self.cluster) if self.subject.queued else set()
            if not before:
                return list(seen.values())
            report.waited += sorted(before - waiting)
            expected = {name: self.subject.jobs[name] for name in before}
            placement.let_jobs_complete(self.cluster, found)
            waiting = placement.wait_for_admission(self.cluster, before)
            if waiting >= before:
                report.problems += [f"job {name} never leaves its queue" for name in sorted(waiting)]
                return list(seen.values())

    def _grown(self, homeless: list[placement.Pod]) -> bool:
        """Add nodes for a provisioning request or a pending pod. Return True if nodes were added."""
        asked = bool(self.subject.queued) and autoscaler.grant_requests(self.folder)
        return asked or autoscaler.grow(self.folder, homeless)

    def _durations(self, report: Report, state: CloudState) -> None:
        waits_for: dict[str, list[str]] = {}
        for resource in self._exported()["deployment"].get("resources", []):
            others = list(resource.get("dependencies") or [])
            waits_for[resource["urn"]] = others
        seconds = {each.urn: each.seconds for each in state.operations if each.verb == "create"}
        report.up_seconds = longest_chain(waits_for, seconds)
        gone = {each.urn: kind_of(each.type).delete_seconds for each in state.resources.values()}
        report.destroy_seconds = longest_chain(turned(waits_for), gone)

    def _destroy(self, report: Report) -> None:
        first = ("destroy", "--yes", "--skip-preview", "--target", JOBS, "--target-dependents")
        if report.pods and not self._pulumi(*first):
            report.problems += ["the jobs could not be deleted before their cluster", *errors(self._printed)]
        if not self._pulumi("destroy", "--yes", "--skip-preview"):
            report.problems += ["`pulumi destroy` failed", *errors(self._printed)]
        left = read_state(self.folder).resources.values()
        kept = {each.key: each.id for each in left if each.type in BUCKETS and not each.inputs.get("forceDestroy")}
        report.kept = sorted(kept.values())
        report.left = [
            f"{each.type} {each.id}" for each in left if each.key not in kept and not kept.keys() & {*each.refers_to}
        ]
        look_at_buckets(read_state(self.folder), report)
        self._receipt(report)

    def _receipt(self, report: Report) -> None:
        """Add the receipt of `make verify-empty`, which searches by name and label as it does in a real cloud."""
        cloud = self.subject.cloud
        if cloud is None:
            return
        receipt = verify(self.subject.stack, cloud, "simulated", simulated(self.folder), ownership(cloud))
        report.receipt = asdict(receipt)
        if receipt.empty == bool(report.left):
            report.problems.append(f"verify-empty found {list(receipt.left)}, but {report.left} is left")

    @property
    def _settings(self) -> Path:
        return self.folder / "settings.yaml"

    def _exported(self) -> dict[str, Any]:
        words = ["pulumi", "stack", "export", "--stack", self.subject.stack]
        done = subprocess.run(
            words,
            cwd=self.subject.project,
            env=folders.environment(self.folder),
            capture_output=True,
            text=True,
            check=True,
        )
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def _pulumi(self, *words: str, quiet: bool = False) -> bool:
        given = (
            ["--config-file", str(self._settings)]
            if self.subject.settings and words[0] in ("up", "destroy", "refresh")
            else []
        )
        stack = [] if words[:2] == ("stack", "init") else ["--stack", self.subject.stack]
        shown = self.verbose and not quiet
        with settings_without_salt():
            status, self._printed = run(
                ["pulumi", *words, *stack, *given, "--non-interactive", "--color", "never"],
                self.subject.project,
                folders.environment(self.folder),
                self._say if shown else None,
            )
        if status != 0 and not shown:
            self._say(self._printed)
        return status == 0

    def _say(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)


def _unchecked(state: CloudState) -> dict[str, list[str]]:
    found: dict[str, set[str]] = {}
    for record in state.resources.values():
        if (table := fact_table(record.type)) and (inputs := unchecked(table, record.inputs)):
            found.setdefault(record.type, set()).update(inputs)
    return {type_: sorted(inputs) for type_, inputs in sorted(found.items())}


def _by_type(state: CloudState) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for record in state.resources.values():
        found.setdefault(record.type, []).append(record.id)
    return found


def _node(item: dict[str, Any]) -> Node:
    labels, offered = item["metadata"]["labels"], item["status"]["allocatable"]
    return Node(
        name=item["metadata"]["name"],
        pool=labels.get("cloud.google.com/gke-nodepool") or labels.get("eks.amazonaws.com/nodegroup", ""),
        machine=labels.get("node.kubernetes.io/instance-type", ""),
        zone=labels.get("topology.kubernetes.io/zone", ""),
        accelerators={name: offered[name] for name in placement.ACCELERATORS if name in offered},
    )
