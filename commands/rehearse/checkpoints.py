"""Checkpoints of a rehearsal's jobs, and the check that kept buckets still hold them after `destroy`."""

from __future__ import annotations

from collections.abc import Sequence

from commands.rehearse.report import Report
from simulation import placement
from simulation.cloud.state import CloudState
from simulation.object_store import StoreError, store_of

CHECKPOINT = "step-000000001/checkpoint.json"
"""Key that each job writes below checkpoints/JOB in the bucket, as a real job does."""


def write_checkpoints(state: CloudState, report: Report, pods: Sequence[placement.Pod]) -> None:
    """Write each job's checkpoint to the URL that its pods have. A missing bucket is a problem."""
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


def look_at_buckets(state: CloudState, report: Report) -> None:
    """Compare the store with the report: kept buckets must hold their checkpoints, and no other bucket may exist."""
    store = store_of(state.settings)
    if store is None:
        return
    for bucket in store.buckets():
        keys = store.keys(bucket)
        if bucket not in report.kept:
            report.left.append(f"bucket {bucket} with {len(keys)} objects")
        elif lost := set(report.written.get(bucket, ())) - set(keys):
            report.problems.append(f"bucket {bucket} must be kept, but lost {', '.join(sorted(lost))}")
