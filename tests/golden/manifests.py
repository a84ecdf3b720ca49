"""The examples and the manifests that they become: `<example>.<kind>.yaml` beside this file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pulumi
import yaml

from stack_config import load_file
from tests.recording import run
from workloads.job import TrainingJob, TrainingJobArgs
from workloads.pod import Placement
from workloads.spec import JobSpec

FOLDER = Path(__file__).parent
PROJECT = FOLDER.parents[1]

ON_CLAIM = Placement(
    namespace="training",
    service_account="trainer",
    image="example.com/trainyard/trainer:1",
    bucket_url="file:///bucket",
    bucket_claim="bucket",
)
"""A platform whose bucket is a volume."""
ON_OBJECT_STORE = Placement(
    namespace="training",
    service_account="trainer",
    image="example.com/trainyard/trainer:1",
    bucket_url="s3://team-checkpoints/runs",
)
"""A platform whose bucket is an object store."""

EVERY_KEY = {
    "name": "resnet",
    "kind": "indexed-job",
    "recipe": "imagenet",
    "hosts": 4,
    "processes_per_host": 2,
    "restarts": 3,
    "resources": {"cpu": 7.5, "memory": "24Gi"},
    "shared_memory": "8Gi",
    "flags": {"arch": "resnet50", "batch_size": 64, "lr": 0.1, "fake_data": True, "amp": False, "job": "$(HOME)"},
    "environment": {"GLOO_SOCKET_IFNAME": "eth0", "NCCL_DEBUG": "INFO", "LIMIT": 3},
    "image": "example.com/team/resnet:2.1",
    "deadline_seconds": 86400,
    "grace_seconds": 120,
}
"""A job that says everything a job can say."""


def examples() -> dict[str, tuple[JobSpec, Placement]]:
    """The jobs by the name of their example: the default stack's, the shortest one, and one with every key."""
    digits = load_file(PROJECT / "Pulumi.local.yaml").jobs[0]
    shortest = JobSpec.model_validate({"name": "shortest", "recipe": "digits"})
    everything = JobSpec.model_validate(EVERY_KEY)
    return {
        "digits": (digits, ON_CLAIM),
        "shortest": (shortest, ON_OBJECT_STORE),
        "every-key": (everything, ON_CLAIM),
    }


def manifests(spec: JobSpec, placement: Placement) -> list[dict[str, Any]]:
    """The Kubernetes objects of a job."""

    def program() -> pulumi.Output[str]:
        return TrainingJob(spec.name, TrainingJobArgs(spec=spec, placement=placement)).name

    return run(program).manifests()


def goldens() -> dict[Path, str]:
    """What each golden file must say."""
    return {
        FOLDER / f"{example}.{spec.kind}.yaml": yaml.safe_dump_all(manifests(spec, placement), sort_keys=True)
        for example, (spec, placement) in examples().items()
    }
