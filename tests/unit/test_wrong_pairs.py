"""Jobs that would share a name or a folder, and flags that would do nothing, are refused; near ones are not."""

from __future__ import annotations

from typing import Any

import pytest

from stack.config import parse
from tests.problems import refused
from tests.unit.refused import JOB, PLATFORM, assert_refused_in_one_line, cloud, job

IMAGENET = {"recipe": "imagenet"}


def pair(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """A configuration with two jobs, `a` and one that says its name."""
    return {"platform": PLATFORM, "jobs": [{**JOB, "name": "a", **first}, {**JOB, **second}]}


CASES: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "a job whose child is named as one above": (
        {"platform": PLATFORM, "jobs": [{**JOB, "name": "a-node-0"}, {**JOB, "name": "a", "kind": "train-job"}]},
        ('jobs[1].name = "a":', "creates an object named a-node-0, as jobs[0] does"),
    )
}
CODES: dict[str, tuple[dict[str, Any], tuple[str, str]]] = {
    "a job named as a folder of all jobs": (job(name="profiles"), ("job.folder.of_all_jobs", "jobs.0.name")),
    "a folder of all jobs": (job(flags={"job": "checkpoints"}), ("job.folder.of_all_jobs", "jobs.0.flags.job")),
    "real images that nothing reads": (
        job(**IMAGENET, flags={"data_dir": "s3://team/imagenet"}),
        ("job.flags.of_image_files", "jobs.0.flags.data_dir"),
    ),
    "steps of images that are not made up": (
        job(**IMAGENET, flags={"fake_data": False, "data_dir": "/bucket/data", "test_steps": 4}),
        ("job.flags.of_made_up_images", "jobs.0.flags.test_steps"),
    ),
    "a cache of what is streamed": (
        job(**IMAGENET, flags={"fake_data": False, "data_dir": "/bucket/data", "stream": True, "cache_dir": "/tmp/c"}),
        ("job.cache_dir.with_stream", "jobs.0.flags.cache_dir"),
    ),
    "weights spread without XLA": (
        job(flags={"sharding": "model"}),
        ("job.sharding.without_xla", "jobs.0.flags.sharding"),
    ),
    "weights spread over processes": (
        cloud(accelerator="v4-32", processes_per_host=4, flags={"sharding": "model"}),
        ("job.sharding.several_processes", "jobs.0.flags.sharding"),
    ),
    "the port of a profiler that is not there": (
        job(flags={"profile_port": 9012}),
        ("job.profile_port.without_xla", "jobs.0.flags.profile_port"),
    ),
    "a profile without a bucket": (
        job(flags={"profile-steps": "3-5", "bucket": ""}),
        ("job.flags.no_bucket", "jobs.0.flags.profile_steps"),
    ),
    "a run of Weights & Biases without a bucket": (
        job(flags={"wandb": "offline", "bucket": ""}),
        ("job.flags.no_bucket", "jobs.0.flags.wandb"),
    ),
    "links of one host": (job(min_bandwidth_gbps=1), ("job.min_bandwidth_gbps.no_links", "jobs.0.min_bandwidth_gbps")),
    "links of idle hosts": (
        job(hosts=2, min_bandwidth_gbps=1, interactive=True),
        ("job.min_bandwidth_gbps.no_links", "jobs.0.min_bandwidth_gbps"),
    ),
    "a job named as another's etcd": (
        pair({"rendezvous": "etcd"}, {"name": "a-etcd"}),
        ("job.name.shared", "jobs.1.name"),
    ),
    "a job named as another's child": (
        pair({"kind": "jobset"}, {"name": "a-worker-0"}),
        ("job.name.shared", "jobs.1.name"),
    ),
    "a job named as another's node": (
        pair({"kind": "train-job"}, {"name": "a-node-0"}),
        ("job.name.shared", "jobs.1.name"),
    ),
    "a job named as another's master": (
        pair({"kind": "pytorch-job"}, {"name": "a-master-0"}),
        ("job.name.shared", "jobs.1.name"),
    ),
    "a folder that is another job's": (
        pair({}, {"name": "b", "flags": {"job": "a"}}),
        ("job.folder.shared", "jobs.1.flags.job"),
    ),
    "a folder that an earlier job has taken": (
        pair({"flags": {"job": "b"}}, {"name": "b"}),
        ("job.folder.shared", "jobs.1.name"),
    ),
    "more parts than samples": (
        job(flags={"accumulate": 65}),
        ("job.accumulate.above_batch", "jobs.0.flags.accumulate"),
    ),
    "more parts than the samples that are asked": (
        job(**IMAGENET, flags={"accumulate": "9", "batch_size": 8}),
        ("job.accumulate.above_batch", "jobs.0.flags.accumulate"),
    ),
    "a bucket without a name": (job(flags={"bucket": "gs://"}), ("job.flags.wrong_value", "jobs.0.flags.bucket")),
    "an elastic PyTorchJob with etcd": (
        job(kind="pytorch-job", elastic={"min_hosts": 1, "max_hosts": 2}, rendezvous="etcd"),
        ("job.rendezvous.kind", "jobs.0.rendezvous"),
    ),
    "an elastic job that the first leaving host ends": (
        job(elastic={"min_hosts": 1, "max_hosts": 2}, restarts=0),
        ("job.restarts.of_elastic", "jobs.0.restarts"),
    ),
    "a deadline in words": (job(deadline_seconds="1h"), ("settings.int_type", "jobs.0.deadline_seconds")),
    "a deadline after all of us": (
        job(deadline_seconds=10**10),
        ("settings.less_than_equal", "jobs.0.deadline_seconds"),
    ),
    "a host that no node can have": (
        job(resources={"cpu": "10000", "memory": "900Mi"}),
        ("capacity.local.host_too_large", "jobs.0.resources"),
    ),
}
"""Settings with the code and path of what is wrong with them."""


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_what_is_refused(case: tuple[dict[str, Any], tuple[str, ...]]) -> None:
    assert_refused_in_one_line(case)


@pytest.mark.parametrize("name", CODES)
def test_settings_with_one_problem_are_refused_with_its_code(name: str) -> None:
    values, problem = CODES[name]
    assert refused(values) == [problem]


@pytest.mark.parametrize(
    "values",
    [
        pair({}, {"name": "a-etcd"}),
        pair({"kind": "jobset"}, {"name": "a-worker-1"}),
        pair({"kind": "jobset"}, {"name": "a-worker"}),
        pair({}, {"name": "b", "flags": {"job": "c"}}),
        pair({"flags": {"bucket": "s3://one"}}, {"name": "b", "flags": {"job": "a", "bucket": "s3://two"}}),
        job(**IMAGENET, flags={"fake_data": False, "data_dir": "/bucket/data", "stream": True}),
        job(**IMAGENET, flags={"fake_data": True, "steps_per_epoch": 3, "stream": False, "cache_dir": ""}),
        job(runtime="xla", flags={"sharding": "model", "profile_port": 9012}),
        job(flags={"profile_steps": "3-5", "wandb": "offline"}),
        job(flags={"wandb": "auto", "profile_steps": "", "bucket": ""}),
        job(flags={"accumulate": 64}),
        job(flags={"accumulate": 65, "batch_size": 65}),
    ],
    ids=str,
)
def test_what_is_near_and_right(values: dict[str, Any]) -> None:
    assert parse(values).jobs


def test_a_missing_key_is_said_with_what_it_is_for() -> None:
    case = ({"platform": PLATFORM}, ("jobs: is missing: Jobs that run at the same time", "add `jobs: [{name: digits"))
    assert_refused_in_one_line(case)
