"""Jobs that their image cannot run, or that name a folder that their platform does not have."""

from __future__ import annotations

from typing import Any

import pytest

from infra.image.own_images import OWN_IMAGES, TRAINER
from stack_config import StackConfig, parse
from stack_rules import contradictions
from tests.unit.refused import CLUSTER, KUBECONFIG, assert_refused_in_one_line, cloud, job
from workloads.image_rules import CONTENTS

MPI = {"recipe": None, "script": "/opt/train.py", "kind": "mpi-job"}
MXNET = {**MPI, "kind": "mx-job"}
SCRIPT = {"recipe": None, "script": "/opt/train.py"}
GPU = {"accelerator": "nvidia-l4"}
URL = {**CLUSTER, "kubeconfig": str(KUBECONFIG), "bucket": {"kind": "url", "url": "s3://team/runs"}}
GKE = {"kind": "gke", "project": "some-project", "pools": [{"name": "cpu", "machine_type": "n2-standard-8"}]}
EKS = {"kind": "eks", "pools": [{"name": "cpu", "machine_type": "c7i.2xlarge"}]}


def on(platform: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """A configuration with one job on a platform."""
    return {**job(**changes), "platform": platform}


IMAGES: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "MPI without an image": (
        job(**MPI),
        (
            "jobs[0].image: is missing: the trainer's image lacks OpenMPI, sshd and ssh, which a job of kind mpi-job",
            "write `image: horovod`",
        ),
    ),
    "MPI without an image in a cloud": (
        on(GKE, **MPI),
        ("jobs[0].image: is missing", "build images/horovod/Dockerfile, push it, write its reference"),
    ),
    "MPI on GPUs without an image": (
        cloud(**MPI, **GPU),
        ("jobs[0].image: is missing", "the reference of an image that has OpenMPI, sshd and ssh and Python"),
    ),
    "a recipe under MPI": (
        job(kind="mpi-job"),
        ("jobs[0].image: is missing", "write `kind: indexed-job`, or `image: horovod` and a `script:`"),
    ),
    "a recipe under MPI in a cloud": (
        cloud(kind="mpi-job"),
        ("jobs[0].image: is missing", "reference of an image that has OpenMPI, sshd and ssh and the trainer"),
    ),
    "MXNet without an image": (job(**MXNET), ("jobs[0].image: is missing", "lacks MXNet", "`image: horovod`")),
    "MPI with the stores' image": (
        job(**MPI, image="stores"),
        ('jobs[0].image = "stores": lacks OpenMPI', "mpi-job needs; write `image: horovod`"),
    ),
    "MXNet with the stores' image": (job(**MXNET, image="stores"), ("lacks MXNet", "write `image: horovod`")),
    "MPI with the image of XLA": (job(**MPI, image="xla"), ("lacks OpenMPI", "write `image: horovod`")),
    "a recipe in Horovod's image": (
        job(image="horovod"),
        ('jobs[0].image = "horovod": lacks the trainer, which recipe digits needs; remove it',),
    ),
    "a recipe in the stores' image": (job(image="stores"), ("lacks the trainer", "remove it")),
    "a recipe under MPI in Horovod's image": (job(kind="mpi-job", image="horovod"), ("lacks the trainer", "`script:`")),
    "torchrun in the stores' image": (
        job(**SCRIPT, image="stores"),
        ('jobs[0].image = "stores": lacks torch, which a script under torchrun needs; remove it',),
    ),
    "torchrun in Horovod's image": (job(**SCRIPT, image="horovod"), ("lacks torch", "remove it")),
    "a script in the image of etcd": (job(**SCRIPT, image="etcd", torchrun=False), ("lacks Python", "remove it")),
    "XLA in Horovod's image": (job(**SCRIPT, image="horovod", runtime="xla"), ("lacks PyTorch/XLA", "remove it")),
    "XLA on a cluster of one's own": (
        cloud(runtime="xla"),
        ("jobs[0].image: is missing: the platform's image is the trainer's without XLA", "trainer/Dockerfile.xla"),
    ),
    "TPUs of a cluster of one's own": (cloud(accelerator="v4-32"), ("jobs[0].image: is missing", "Dockerfile.xla")),
    "the image of XLA on a cluster of one's own": (
        cloud(image="xla"),
        ('jobs[0].image = "xla": is not built on this platform; build trainer/Dockerfile.xla, push it',),
    ),
    "Horovod's image in a cloud": (
        on(EKS, **MPI, image="horovod"),
        ('jobs[0].image = "horovod": is not built on this platform; build images/horovod/Dockerfile, push it',),
    ),
    "the trainer's image by its name": (job(image="trainer"), ('jobs[0].image = "trainer":', "names none; remove it")),
    "the trainer's image by its name in a cloud": (on(GKE, image="trainer"), ("names none; remove it",)),
}
FOLDERS: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "a script in the bucket of GKE": (
        on(GKE, recipe=None, script="/bucket/train.py"),
        ('jobs[0].script = "/bucket/train.py": no pod has /bucket here', "write a path in the image, or ./ and one"),
    ),
    "a script in a bucket of a URL": (on(URL, recipe=None, script="/bucket/train.py"), ("jobs[0].script", "no pod")),
    "images in the bucket of EKS": (
        on(EKS, recipe="imagenet", flags={"fake_data": False, "data_dir": "/bucket/tiny"}),
        ('jobs[0].flags.data_dir = "/bucket/tiny":', "write its URL, s3://NAME/tiny", "output bucket_url"),
    ),
    "digits in the bucket": (on(GKE, flags={"data_dir": "/bucket"}), ("the digits are in the image; remove it",)),
    "a cache in the bucket": (
        on(GKE, recipe="imagenet", flags={"fake_data": False, "data_dir": "gs://a/b", "cache-dir": "/bucket/cache"}),
        ("jobs[0].flags.cache-dir", "write a folder of the host, such as /dev/shm"),
    ),
    "checkpoints in the folder": (on(GKE, flags={"bucket": "file:///bucket/a"}), ("write its URL, gs://NAME/a",)),
    "an argument": (on(GKE, **SCRIPT, args=["--data=/bucket/a"]), ("jobs[0].args[0]", "gs://NAME/a")),
    "a variable": (on(URL, environment={"DATA": "/bucket/a"}), ("jobs[0].environment.DATA", "s3://NAME/a")),
}
CASES = IMAGES | FOLDERS
TAKEN: dict[str, dict[str, Any]] = {
    "MPI in Horovod's image": job(**MPI, image="horovod"),
    "MXNet in Horovod's image": job(**MXNET, image="horovod"),
    "a script by itself in the stores' image": job(**SCRIPT, image="stores", torchrun=False),
    "a script in the image of XLA": job(**SCRIPT, image="xla"),
    "XLA on this machine": job(runtime="xla"),
    "an image that was built here": job(image="trainyard.local/pause:1"),
    "MPI in an image of one's own": cloud(**MPI, image="example.com/team/train:1"),
    "XLA in an image of one's own": cloud(runtime="xla", image="example.com/team/xla:1"),
    "the bucket's folder here": job(recipe=None, script="/bucket/train.py"),
    "the bucket's folder in a claim": cloud(recipe="imagenet", flags={"fake_data": False, "data_dir": "/bucket/a"}),
    "another folder": on(URL, **SCRIPT, args=["/buckets/a", "a=/bucket/a"]),
    "a class of a cluster of one's own": cloud(priority_class="high"),
    "a class that somebody makes in the stack's cluster": job(priority_class="high"),
    "an image that may be anywhere": job(image="example.com/team/train:1"),
}


@pytest.mark.parametrize("name", CASES)
def test_refused_in_one_line(name: str) -> None:
    assert_refused_in_one_line(CASES[name])


@pytest.mark.parametrize("name", TAKEN)
def test_taken(name: str) -> None:
    parse(TAKEN[name])


def test_it_is_known_of_every_image_what_is_in_it() -> None:
    assert CONTENTS.keys() == {TRAINER, *OWN_IMAGES}


def test_an_image_that_is_there_already_is_the_trainers() -> None:
    image = {"prebuilt": f"example.com/trainer@sha256:{'0' * 64}"}
    platform = {**GKE, "zone": "us-central2-b", "pools": [{"name": "tpus", "accelerator": "v4-8"}], "image": image}
    values = on(platform, accelerator="v4-8")
    config = StackConfig.model_validate(values, strict=False)
    (problem,) = contradictions(config.platform, config.jobs)
    assert "jobs[0].image: is missing: the platform's image is the trainer's without XLA" in str(problem)
