"""What the jobs of a rehearsal leave in their buckets, and that it is there after `destroy` where it is to be kept."""

from __future__ import annotations

from collections.abc import Sequence

from rehearsal import placement
from rehearsal.cloud.state import CloudState
from rehearsal.object_store import StoreError, store_of
from rehearsal.report import Report

CHECKPOINT = "step-000000001/checkpoint.json"
"""What each job leaves in the bucket, in checkpoints/JOB as a real one would."""


def write_checkpoints(state: CloudState, report: Report, pods: Sequence[placement.Pod]) -> None:
    """Write what jobs would write, where their pods are told to: a bucket that is not there says so."""
    store = store_of(state.settings)
    if store is None:
        return
    urls = {pod.job: pod.environment[placement.BUCKET] for pod in pods if placement.BUCKET in pod.environment}
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
    """Say what the store itself says: buckets that are kept have their objects, and there are no others."""
    store = store_of(state.settings)
    if store is None:
        return
    for bucket in store.buckets():
        keys = store.keys(bucket)
        if bucket not in report.kept:
            report.left.append(f"bucket {bucket} with {len(keys)} objects")
        elif lost := set(report.written.get(bucket, ())) - set(keys):
            report.problems.append(f"bucket {bucket} was to be kept, and lost {', '.join(sorted(lost))}")
