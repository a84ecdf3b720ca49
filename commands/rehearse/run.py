"""Complete rehearsal: `up` in a simulated cloud, a check of nodes and pods, `destroy`."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from commands.cloud_inventory import (
    adopt,
    id_finder,
    ownership,
    refresh_stale,
    replace_options,
    simulated,
    verify,
)
from commands.interrupts import hold_signals
from commands.pulumi_output import EVENTS_VARIABLE, VERBS, FoldedOutput, is_verbose
from commands.rehearse import folder as folders
from commands.rehearse.folder import first_errors, run_program
from commands.rehearse.report import Node, Report, longest_chain, reversed_graph
from commands.stack import JOBS_TARGET, settings_without_salt
from commands.stack_files import StateFiles, end_orphans, project_name
from infra.cloud import ProvisionedCloud
from infra.local import leftovers, lifecycle
from infra.local.settings import ClusterSettings
from simulation import placement
from simulation.cloud.checking import KINDS, kind_of
from simulation.cloud.fact_check import unchecked
from simulation.cloud.fact_table import fact_table
from simulation.cloud.lifecycle import quota_used
from simulation.cloud.model import CloudState, Properties, new_state, read_state
from simulation.cluster import control_plane
from simulation.cluster.effects import BUCKETS
from simulation.object_store import StoreError, running, store_of

MAX_WAIT_SECONDS = 120.0
"""Maximum wait, in seconds, for nodes and pods to stop changing."""
WAIT_SECONDS_PER_POD = 0.3
"""Seconds added to MAX_WAIT_SECONDS for each pod of a job."""
SETTINGS = "settings.yaml"
CHECKPOINT = "step-000000001/checkpoint.json"
"""Object that the rehearsal writes for each job, below checkpoints/JOB in the stack's bucket."""


@dataclass(frozen=True, kw_only=True)
class Subject:
    """Stack to rehearse."""

    stack: str
    project: Path
    """Folder of the Pulumi program."""
    settings: Path | None
    """Settings file of the stack; None for a program without settings."""
    jobs: Mapping[str, int]
    """Job -> minimum number of its pods."""
    queued: frozenset[str] = frozenset()
    """Jobs that a queue must admit."""
    cloud: ProvisionedCloud | None = None
    """Cloud of the stack; None for a program without settings."""


@dataclass(kw_only=True)
class Rehearsal:
    """Rehearsal of one stack in its own folder."""

    subject: Subject
    folder: Path
    cluster: ClusterSettings
    fault: str = ""
    """Fault to inject; empty for none."""
    quotas: Mapping[str, int] | None = None
    """Region and name of a quota -> its limit in the simulated cloud."""
    verbose: bool = True
    """Print Pulumi's progress to standard error."""
    _output: str = field(default="", init=False)
    """Output of Pulumi's last command."""

    def run(self) -> Report:
        """Rehearse the stack. Always remove the cluster and the folder at the end."""
        with folders.rehearsal_lock(self.folder):
            return self._run()

    def _run(self) -> Report:
        begun = time.monotonic()
        report = Report(stack=self.subject.stack, fault=self.fault)
        cloud = self.subject.cloud
        if cloud:
            estimate = cloud.cost_estimate()
            report.cost = {part: money.amount for part, money in estimate.by_part().items()}
            report.cost_total, report.unpriced = str(estimate.total), list(estimate.unpriced)
        if self.folder.exists():
            shutil.rmtree(self.folder)
        self.folder.mkdir(mode=0o700, parents=True)
        try:
            with running(cloud.scheme) if cloud else nullcontext(Properties()) as store_settings:
                cluster_settings = control_plane.prepare(self.folder, self.cluster)
                settings = {**cluster_settings, **store_settings, "quotas": dict(self.quotas or {})}
                new_state(self.folder, fault=self.fault, settings=settings)
                if self._up(report):
                    self._inspect(report)
                else:
                    report.up_failed, report.resources = True, _ids_by_type(read_state(self.folder))
                self._destroy(report)
        except KeyboardInterrupt:
            self._print("rehearsal: stopping; removing the simulated cloud and its cluster")
            raise
        finally:
            with hold_signals():
                end_orphans(folders.run_mark(self.folder))
                lifecycle.stop(self.cluster)
                report.left += leftovers.find(self.cluster.folder, self.cluster.cgroup)
                shutil.rmtree(self.folder)
        report.wall_seconds = time.monotonic() - begun
        return report

    def _create_stack(self) -> None:
        """Create the stack. Replace the value of each encrypted setting with an encrypted placeholder."""
        keys: list[str] = []
        if self.subject.settings:
            keys = folders.write_settings(self.subject.settings, self.folder / SETTINGS)
        self._pulumi("stack", "init", self.subject.stack, quiet=True)
        if keys:
            # The program would reject a secret in plain text.
            values = [word for key in keys for word in ("--secret", f"{key}={folders.SECRET_PLACEHOLDER}")]
            self._pulumi("config", "set-all", *values, quiet=True)

    def _up(self, report: Report) -> bool:
        """Run `pulumi up`. If it fails with a fault, repair the state and run it again. Return True if it succeeds."""
        self._create_stack()
        succeeded = self._pulumi("up", "--yes", "--skip-preview")
        if succeeded:
            # A leak fault happens only during `destroy`.
            if read_state(self.folder).fault and not self.fault.startswith("leak:"):
                report.problems.append(f"the fault {self.fault} did not happen: no operation matches it")
            return True
        if self.fault:
            self._print(f"`pulumi up` failed with fault {self.fault}; running it again")
            succeeded = self._recover() and self._pulumi("up", "--yes", "--skip-preview", *self._replace_options())
        if not succeeded:
            fault = f" with fault {self.fault} and did not recover" if self.fault else ""
            report.problems.append(f"`pulumi up` failed{fault}")
            report.problems += first_errors(self._output)
        return succeeded

    def _recover(self) -> bool:
        """Repair the stack's state after a failed update, as `make up` does. Return False if that is impossible."""
        StateFiles(self.folder / folders.BACKEND, project_name(self.subject.project), self.subject.stack).repair()
        self._pulumi("cancel", "--yes", quiet=True)
        try:
            cloud = self.subject.cloud
            find = id_finder(cloud, simulated(self.folder)) if cloud else None
            lost = adopt(self._export(), self._pulumi, find)
        except RuntimeError as error:
            self._print(str(error))
            return False
        if lost:
            self._print(f"cannot find out whether the cloud created {', '.join(lost)}")
        return True

    def _replace_options(self) -> list[str]:
        """Refresh stale resources, as `make up` does. Return the options that replace failed resources."""
        cloud = self.subject.cloud
        if cloud is None:
            return []
        deployment = refresh_stale(cloud, lambda: self._export()["deployment"], self._pulumi)
        return replace_options(cloud, deployment)

    def _inspect(self, report: Report) -> None:
        state = read_state(self.folder)
        report.resources = _ids_by_type(state)
        report.unchecked = _unchecked(state)
        report.without_rules = sorted({each.type for each in state.resources.values() if each.type not in KINDS})
        report.quota = quota_used(state)
        self._estimate_durations(report, state)
        if "cluster_of" not in state.settings:
            return
        found = self._settled_pods(report)
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
                report.problems.append(f"job {job} has only {have} of {count} pods: its controller created no more")
        _write_checkpoints(read_state(self.folder), report, found)
        placement.let_jobs_complete(self.cluster, placement.pods(self.cluster))

    def _settled_pods(self, report: Report) -> list[placement.Pod]:
        """Return the pods of all jobs once they no longer change. While jobs wait in a queue, complete running jobs."""
        limit = MAX_WAIT_SECONDS + WAIT_SECONDS_PER_POD * sum(self.subject.jobs.values())
        seen: dict[str, placement.Pod] = {}
        expected, waiting = dict(self.subject.jobs), set[str]()
        while True:
            found = placement.wait_for_pods(self.cluster, expected, self._add_nodes, limit, self._queued_jobs)
            seen |= {pod.name: pod for pod in found if pod.name not in seen or not seen[pod.name].node}
            queued = self._queued_jobs()
            if not queued:
                return list(seen.values())
            report.waited += sorted(queued - waiting)
            expected = {name: self.subject.jobs[name] for name in queued}
            placement.let_jobs_complete(self.cluster, found)
            waiting = placement.wait_for_admission(self.cluster, queued)
            if waiting >= queued:
                report.problems += [f"job {name} never leaves its queue" for name in sorted(waiting)]
                return list(seen.values())

    def _queued_jobs(self) -> set[str]:
        return placement.queued_jobs(self.cluster) if self.subject.queued else set()

    def _add_nodes(self, pending: list[placement.Pod]) -> bool:
        """Add nodes for a provisioning request or a pending pod. Return True if there are new nodes."""
        is_granted = bool(self.subject.queued) and placement.grant_requests(self.folder)
        return is_granted or placement.grow(self.folder, pending)

    def _estimate_durations(self, report: Report, state: CloudState) -> None:
        """Estimate how long `up` and `destroy` would take in the real cloud."""
        resources = self._export()["deployment"].get("resources", [])
        waits_for = {each["urn"]: list(each.get("dependencies") or []) for each in resources}
        seconds = {each.urn: each.seconds for each in state.operations if each.verb == "create"}
        report.up_seconds = longest_chain(waits_for, seconds)
        delete_seconds = {each.urn: kind_of(each.type).delete_seconds for each in state.resources.values()}
        report.destroy_seconds = longest_chain(reversed_graph(waits_for), delete_seconds)

    def _destroy(self, report: Report) -> None:
        """Destroy the jobs, then the rest of the stack, and add what is left to the report."""
        destroy_jobs = ("destroy", "--yes", "--skip-preview", "--target", JOBS_TARGET, "--target-dependents")
        if report.pods and not self._pulumi(*destroy_jobs):
            report.problems += ["the jobs could not be deleted before their cluster", *first_errors(self._output)]
        if not self._pulumi("destroy", "--yes", "--skip-preview"):
            report.problems += ["`pulumi destroy` failed", *first_errors(self._output)]
        left = read_state(self.folder).resources.values()
        kept = {each.key: each.id for each in left if each.type in BUCKETS and not each.inputs.get("forceDestroy")}
        report.kept = sorted(kept.values())
        # A kept bucket also keeps the resources that refer to it.
        report.left = [
            f"{each.type} {each.id}" for each in left if each.key not in kept and not kept.keys() & {*each.refers_to}
        ]
        _check_buckets(read_state(self.folder), report)
        self._verify_empty(report)

    def _verify_empty(self, report: Report) -> None:
        """Add the result of `make verify-empty`, which searches by name and label, as in a real cloud."""
        cloud = self.subject.cloud
        if cloud is None:
            return
        receipt = verify(self.subject.stack, cloud, "simulated", simulated(self.folder), ownership(cloud))
        report.receipt = asdict(receipt)
        if receipt.empty == bool(report.left):
            report.problems.append(f"verify-empty found {list(receipt.left)}, but {report.left} is left")

    def _export(self) -> dict[str, Any]:
        """Return the stack's state."""
        done = subprocess.run(
            ["pulumi", "stack", "export", "--stack", self.subject.stack],
            cwd=self.subject.project,
            env=folders.environment(self.folder),
            capture_output=True,
            text=True,
            check=True,
        )
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def _pulumi(self, *words: str, quiet: bool = False) -> bool:
        """Run a command of Pulumi. Return True if it succeeds. If it fails, print output that was not shown."""
        has_settings = self.subject.settings and words[0] in ("config", "up", "destroy", "refresh")
        given = ["--config-file", str(self.folder / SETTINGS)] if has_settings else []
        stack = [] if words[:2] == ("stack", "init") else ["--stack", self.subject.stack]
        shown = self.verbose and not quiet
        command = ["pulumi", *words, *stack, *given, "--non-interactive", "--color", "never"]
        # Pulumi would otherwise write an encryption salt into the checkout's own settings files.
        with settings_without_salt(self.subject.project):
            if shown and words[0] in VERBS and not is_verbose():
                return self._folded(words[0], command)
            status, self._output = run_program(
                command, self.subject.project, folders.environment(self.folder), self._print if shown else None
            )
        if status != 0 and not shown:
            self._print(self._output)
        return status == 0

    def _folded(self, name: str, command: list[str]) -> bool:
        """Run a command of Pulumi that changes resources, with short output. Return True if it succeeds."""
        stack, changes_jobs = f"rehearsal-{self.subject.stack}", JOBS_TARGET in command
        with (
            TemporaryDirectory(dir=self.folder) as scratch,
            FoldedOutput(name, stack, Path(scratch), sys.stderr, changes_jobs=changes_jobs) as output,
        ):

            def add(line: str) -> None:
                output.file.write(f"{line}\n")
                output.poll(False)

            environment = folders.environment(self.folder) | EVENTS_VARIABLE
            status, self._output = run_program([*command, *output.options], self.subject.project, environment, add)
            output.file.flush()
            output.end(status)
        return status == 0

    def _print(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)


def _unchecked(state: CloudState) -> dict[str, list[str]]:
    """Return type -> inputs that the provider checks and the rehearsal does not."""
    found: dict[str, set[str]] = {}
    for record in state.resources.values():
        if (table := fact_table(record.type)) and (inputs := unchecked(table, record.inputs)):
            found.setdefault(record.type, set()).update(inputs)
    return {type_: sorted(inputs) for type_, inputs in sorted(found.items())}


def _ids_by_type(state: CloudState) -> dict[str, list[str]]:
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


def _write_checkpoints(state: CloudState, report: Report, pods: Sequence[placement.Pod]) -> None:
    """Write a checkpoint for each job to the URL in its pods' environment. Report each failed write as a problem."""
    store = store_of(state.settings)
    if store is None:
        return
    variable = placement.BUCKET_VARIABLE
    urls = {pod.job: pod.environment[variable] for pod in pods if variable in pod.environment}
    for job, url in urls.items():
        bucket, _, prefix = url.partition("://")[2].partition("/")
        key = "/".join(filter(None, (prefix, "checkpoints", job, CHECKPOINT)))
        try:
            store.write(bucket, key)
        except StoreError as error:
            report.problems.append(f"job {job} cannot write to {url}: {error}")
        else:
            report.written.setdefault(bucket, []).append(key)


def _check_buckets(state: CloudState, report: Report) -> None:
    """Report kept buckets that lost checkpoints, and other buckets, which `destroy` should have deleted."""
    store = store_of(state.settings)
    if store is None:
        return
    for bucket in store.buckets():
        keys = store.keys(bucket)
        if bucket not in report.kept:
            report.left.append(f"bucket {bucket} with {len(keys)} objects")
        elif lost := set(report.written.get(bucket, ())) - set(keys):
            report.problems.append(f"bucket {bucket} must be kept, but lost {', '.join(sorted(lost))}")
