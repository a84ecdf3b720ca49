"""Jobs that their image cannot run, or that name a folder that their platform does not have."""

from __future__ import annotations

from typing import Any

import pytest

from infra.image.builtin_images import OWN_IMAGES, TRAINER, TRAINER_IMAGE, WORK_FOLDER
from stack.config import StackConfig, parse
from stack.validation import contradictions
from tests.problems import refused
from tests.unit.refused import CLUSTER, KUBECONFIG, assert_refused_in_one_line, cloud, job
from workloads.validation.image_files import PROJECT, data_folders, python_files
from workloads.validation.images import CONTENTS

MPI = {"recipe": None, "script": "/opt/train.py", "kind": "mpi-job"}
MXNET = {**MPI, "kind": "mx-job"}
RAY = {**MPI, "kind": "ray-job", "resources": {"cpu": "500m", "memory": "1Gi"}, "shared_memory": "256Mi"}
SCRIPT = {"recipe": None, "script": "/opt/train.py"}
LINKS = {"recipe": None, "script": "/opt/trainyard/trainer/network_check.py"}
OF_HOROVOD = {"script": "/opt/trainyard/recipes/mxnet_horovod.py", "image": "horovod"}
OF_STORES = {"recipe": None, "script": "/opt/trainyard/serve.py", "image": "stores"}
IMAGENET = {"recipe": "imagenet"}
GPU = {"accelerator": "nvidia-l4"}
URL = {**CLUSTER, "kubeconfig": str(KUBECONFIG), "bucket": {"kind": "url", "url": "s3://team/runs"}}
GKE = {"kind": "gke", "project": "some-project", "pools": [{"name": "cpu", "machine_type": "n2-standard-8"}]}
EKS = {"kind": "eks", "pools": [{"name": "cpu", "machine_type": "c7i.2xlarge"}]}


def on(platform: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """A configuration with one job on a platform."""
    return {**job(**changes), "platform": platform}


def imagenet(**flags: Any) -> dict[str, Any]:
    """A configuration with a job that reads images."""
    return job(**IMAGENET, flags={"fake_data": False, **flags})


CASES: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "MPI without an image": (
        job(**MPI),
        (
            "jobs[0].image: is missing: the trainer's image lacks OpenMPI, sshd and ssh, which a job of kind mpi-job",
            "write `image: horovod`",
        ),
    ),
    "Ray without an image": (
        job(**RAY),
        (
            "jobs[0].image: is missing: the trainer's image lacks Ray, which a job of kind ray-job needs",
            "write `image: ray`",
        ),
    ),
    "MPI on GPUs without an image": (
        cloud(**MPI, **GPU),
        ("jobs[0].image: is missing", "the reference of an image that has OpenMPI, sshd and ssh and Python"),
    ),
    "a recipe in Horovod's image": (
        job(image="horovod"),
        ('jobs[0].image = "horovod": lacks the trainer, which recipe digits needs; remove it',),
    ),
    "images in the bucket of EKS": (
        on(EKS, recipe="imagenet", flags={"fake_data": False, "data_dir": "/bucket/tiny"}),
        ('jobs[0].flags.data_dir = "/bucket/tiny":', "write its URL, s3://NAME/tiny", "output bucket_url"),
    ),
    "a script misspelt": (
        job(recipe=None, script="/opt/trainyard/trainer/scripts/elastic_light.py"),
        ("jobs[0].script", "write /opt/trainyard/trainer/scripts/elastic_lightning.py"),
    ),
}
CODES: dict[str, tuple[dict[str, Any], tuple[str, str]]] = {
    "Ray in Horovod's image": (job(**RAY, image="horovod"), ("job.image.lacks_ray", "jobs.0.image")),
    "a script that Ray's image lacks": (job(**RAY, image="ray"), ("job.script.not_in_image", "jobs.0.script")),
    "MPI without an image in a cloud": (on(GKE, **MPI), ("job.image.lacks_open_mpi", "jobs.0.image")),
    "a recipe under MPI": (job(kind="mpi-job"), ("job.image.lacks_open_mpi", "jobs.0.image")),
    "a recipe under MPI in a cloud": (cloud(kind="mpi-job"), ("job.image.lacks_open_mpi", "jobs.0.image")),
    "MXNet without an image": (job(**MXNET), ("job.image.lacks_mxnet", "jobs.0.image")),
    "MPI with the stores' image": (job(**MPI, image="stores"), ("job.image.lacks_open_mpi", "jobs.0.image")),
    "MXNet with the stores' image": (job(**MXNET, image="stores"), ("job.image.lacks_mxnet", "jobs.0.image")),
    "MPI with the image of XLA": (job(**MPI, image="xla"), ("job.image.lacks_open_mpi", "jobs.0.image")),
    "a recipe in the stores' image": (job(image="stores"), ("job.image.lacks_trainer", "jobs.0.image")),
    "a recipe under MPI in Horovod's image": (
        job(kind="mpi-job", image="horovod"),
        ("job.image.lacks_trainer", "jobs.0.image"),
    ),
    "torchrun in the stores' image": (job(**SCRIPT, image="stores"), ("job.image.lacks_torch", "jobs.0.image")),
    "torchrun in Horovod's image": (job(**SCRIPT, image="horovod"), ("job.image.lacks_torch", "jobs.0.image")),
    "a script in the image of etcd": (
        job(**SCRIPT, image="etcd", torchrun=False),
        ("job.image.lacks_python", "jobs.0.image"),
    ),
    "XLA in Horovod's image": (job(**SCRIPT, image="horovod", runtime="xla"), ("job.image.lacks_xla", "jobs.0.image")),
    "XLA on a cluster of one's own": (cloud(runtime="xla"), ("job.image.not_built", "jobs.0.image")),
    "TPUs of a cluster of one's own": (cloud(accelerator="v4-32"), ("job.image.not_built", "jobs.0.image")),
    "the image of XLA on a cluster of one's own": (cloud(image="xla"), ("job.image.not_built", "jobs.0.image")),
    "Horovod's image in a cloud": (on(EKS, **MPI, image="horovod"), ("job.image.not_built", "jobs.0.image")),
    "the trainer's image by its name": (job(image="trainer"), ("job.image.is_default", "jobs.0.image")),
    "the trainer's image by its name in a cloud": (on(GKE, image="trainer"), ("job.image.is_default", "jobs.0.image")),
    "a script in the bucket of GKE": (
        on(GKE, recipe=None, script="/bucket/train.py"),
        ("job.script.in_bucket", "jobs.0.script"),
    ),
    "a script in a bucket of a URL": (
        on(URL, recipe=None, script="/bucket/train.py"),
        ("job.script.in_bucket", "jobs.0.script"),
    ),
    "digits in the bucket": (on(GKE, flags={"data_dir": "/bucket"}), ("job.bucket.no_folder", "jobs.0.flags.data_dir")),
    "a cache in the bucket": (
        on(GKE, recipe="imagenet", flags={"fake_data": False, "data_dir": "gs://a/b", "cache-dir": "/bucket/cache"}),
        ("job.bucket.no_folder", "jobs.0.flags.cache-dir"),
    ),
    "checkpoints in the folder": (
        on(GKE, flags={"bucket": "file:///bucket/a"}),
        ("job.bucket.no_folder", "jobs.0.flags.bucket"),
    ),
    "an argument": (on(GKE, **LINKS, args=["--data=/bucket/a"]), ("job.bucket.no_folder", "jobs.0.args.0")),
    "a variable": (on(URL, environment={"DATA": "/bucket/a"}), ("job.bucket.no_folder", "jobs.0.environment.DATA")),
    "a script of nobody's image": (job(**SCRIPT), ("job.script.not_in_image", "jobs.0.script")),
    "a script of nobody's image in a cloud": (on(EKS, **SCRIPT), ("job.script.not_in_image", "jobs.0.script")),
    "a script next to nothing": (job(recipe=None, script="train.py"), ("job.script.not_in_image", "jobs.0.script")),
    "a script of Horovod's image misspelt": (
        job(**MPI | OF_HOROVOD | {"script": "/opt/trainyard/recipes/mxnet_horvod.py"}),
        ("job.script.not_in_image", "jobs.0.script"),
    ),
    "a script of the trainer in the stores' image": (
        job(**LINKS, image="stores", torchrun=False),
        ("job.script.not_in_image", "jobs.0.script"),
    ),
    "images of nobody's image": (
        imagenet(data_dir="/data/imagenet"),
        ("job.data_dir.not_in_image", "jobs.0.flags.data_dir"),
    ),
    "images of nobody's image in a cloud": (
        on(GKE, **IMAGENET, flags={"fake_data": False, "data-dir": "/data"}),
        ("job.data_dir.not_in_image", "jobs.0.flags.data-dir"),
    ),
    "images that the image of XLA has not": (
        job(**IMAGENET, runtime="xla", flags={"fake_data": False, "data_dir": "/opt/trainyard/tiny-imagenet"}),
        ("job.data_dir.not_in_image", "jobs.0.flags.data_dir"),
    ),
    "digits elsewhere": (
        job(flags={"data_dir": "/data/digits"}),
        ("job.data_dir.not_in_image", "jobs.0.flags.data_dir"),
    ),
}
"""Settings with the code and path of what is wrong with them."""
TAKEN: dict[str, dict[str, Any]] = {
    "MPI in Horovod's image": job(**MPI | OF_HOROVOD),
    "MXNet in Horovod's image": job(**MXNET | OF_HOROVOD),
    "a script of the checkout in Horovod's image": job(
        **MPI | {"script": "./trainer/network_check.py"}, image="horovod"
    ),
    "a script of the trainer's image": job(**LINKS),
    "a script of the image, from its folder on": job(
        recipe=None, script="/opt/trainyard/trainer/../trainer/network_check.py"
    ),
    "a script of a package": job(recipe=None, script="/opt/trainyard/venv/lib/python3.11/site-packages/timm/a.py"),
    "a script that somebody brings by hand": job(**SCRIPT, interactive=True),
    "a script of a platform's image": cloud(**SCRIPT),
    "images that the image has": imagenet(data_dir="/opt/trainyard/tiny-imagenet/"),
    "images in the image's folder": imagenet(data_dir="tiny-imagenet"),
    "images in a mounted bucket": imagenet(data_dir="/bucket/imagenet"),
    "images in any bucket": on(GKE, **IMAGENET, flags={"fake_data": False, "data_dir": "s3://team/imagenet"}),
    "images of a platform's image": cloud(**IMAGENET, flags={"fake_data": False, "data_dir": "/data/imagenet"}),
    "images of an image of one's own": job(
        **IMAGENET, image="trainyard.local/a:1", flags={"fake_data": False, "data_dir": "/data/imagenet"}
    ),
    "digits that are in the image": job(flags={"data_dir": "/opt/trainyard/digits"}),
    "a script by itself in the stores' image": job(**OF_STORES, torchrun=False),
    "a script in the image of XLA": job(**LINKS, image="xla"),
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


@pytest.mark.parametrize("name", CODES)
def test_settings_with_one_problem_are_refused_with_its_code(name: str) -> None:
    values, problem = CODES[name]
    assert refused(values) == [problem]


@pytest.mark.parametrize("name", TAKEN)
def test_taken(name: str) -> None:
    parse(TAKEN[name])


def test_it_is_known_of_every_image_what_is_in_it() -> None:
    assert CONTENTS.keys() == {TRAINER, *OWN_IMAGES}


@pytest.mark.parametrize("name", [TRAINER, *OWN_IMAGES])
def test_dockerfile_copies_the_sources_and_data_of_its_image(name: str) -> None:
    image = OWN_IMAGES.get(name, TRAINER_IMAGE)
    lines = (PROJECT / image.dockerfile).read_text(encoding="utf-8").rpartition("\nFROM ")[2].splitlines()
    copied = {
        line
        for line in lines
        if line.startswith("COPY ") and not line.startswith("COPY --") and "requirements" not in line
    }
    digits = {"COPY digits digits"} if "digits" in image.data else set()
    assert copied == {f"COPY {source} {target}" for source, target in image.sources.items()} | digits
    made = {line.rpartition(" ")[2] for line in lines if line.startswith("RUN python made_images.py ")}
    assert made == image.data - {"digits"}
    assert f"WORKDIR {WORK_FOLDER}" in lines or name == "etcd"


def test_files_of_images_are_those_of_the_checkout() -> None:
    assert python_files("etcd") == data_folders("etcd") == frozenset()
    assert data_folders(TRAINER) == {"/opt/trainyard/digits", "/opt/trainyard/tiny-imagenet"}
    assert data_folders("horovod") == {"/opt/trainyard/digits"}
    for name in (TRAINER, "xla"):
        assert {"/opt/trainyard/trainer/network_check.py", "/opt/trainyard/trainer/__main__.py"} < python_files(name)
    assert python_files("stores") == {"/opt/trainyard/serve.py"}


def test_an_image_that_is_there_already_is_the_trainers() -> None:
    image = {"prebuilt": f"example.com/trainer@sha256:{'0' * 64}"}
    platform = {**GKE, "zone": "us-central2-b", "pools": [{"name": "tpus", "accelerator": "v4-8"}], "image": image}
    values = on(platform, accelerator="v4-8")
    config = StackConfig.model_validate(values, strict=False)
    (problem,) = contradictions(config.cloud, config.jobs)
    assert "jobs[0].image: is missing: the platform's image is the trainer's without XLA" in str(problem)
