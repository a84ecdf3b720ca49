"""Rules between a job, its image, its script and the folders in its pods."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from infra.builtin_images import BUILTIN_IMAGES, TRAINER, TRAINER_IMAGE, WORK_FOLDER
from infra.project import CHECKOUT, PROJECT_VARIABLE
from stack.config import StackConfig, parse
from stack.validation import configuration_conflicts
from tests.problems import problems_of
from tests.unit.stack_settings import CLUSTER, KUBECONFIG, code_ids, error_lines, job, job_on_cluster
from workloads.kinds import KINDS
from workloads.validation.images import IMAGE_SOFTWARE, SOFTWARE_CODES, data_folders, python_files

SCRIPT_JOB = {"recipe": None, "script": "/opt/train.py"}
MPI_JOB = {**SCRIPT_JOB, "kind": "mpi-job"}
MXNET_JOB = {**SCRIPT_JOB, "kind": "mx-job"}
NETWORK_CHECK_JOB = {"recipe": None, "script": "/opt/trainyard/network_check.py"}
RAY_JOB = {**SCRIPT_JOB, "kind": "ray-job", "resources": {"cpu": "500m", "memory": "1Gi"}, "shared_memory": "256Mi"}
HOROVOD_JOB = {"script": "/opt/trainyard/recipes/mxnet_horovod.py", "image": "horovod"}
STORES_JOB = {"recipe": None, "script": "/opt/trainyard/serve.py", "image": "stores"}
IMAGENET = {"recipe": "imagenet"}
LANGUAGE = {"recipe": "language"}
TINY = "/opt/trainyard/tiny-imagenet"
CLUSTER_WITH_URL = {**CLUSTER, "kubeconfig": str(KUBECONFIG), "bucket": {"kind": "url", "url": "s3://team/runs"}}
GKE = {"kind": "gke", "project": "some-project", "pools": [{"name": "cpu", "machine_type": "n2-standard-8"}]}
EKS = {"kind": "eks", "pools": [{"name": "cpu", "machine_type": "c7i.2xlarge"}]}


def on(platform: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """Return a configuration with one job on a platform."""
    return {**job(**changes), "platform": platform}


def imagenet(**flags: Any) -> dict[str, Any]:
    """Return a configuration with a job that trains on images of `data_dir`."""
    return job(**IMAGENET, flags={"fake_data": False, **flags})


def cached_images(folder: str) -> dict[str, Any]:
    """Return a configuration with a job that caches decoded images."""
    return imagenet(data_dir=TINY, cache_dir=folder)


def bucket(url: str, **changes: Any) -> dict[str, Any]:
    """Return a configuration with a job that has its own bucket."""
    return job(flags={"bucket": url}, **changes)


IMAGE_PROBLEMS: list[tuple[dict[str, Any], str, str]] = [
    (on(GKE, **MPI_JOB), "job.image.lacks_open_mpi", "image"),
    (job(**RAY_JOB), "job.image.lacks_ray", "image"),
    (job(**RAY_JOB, image="horovod"), "job.image.lacks_ray", "image"),
    (job(**RAY_JOB, image="ray"), "job.script.not_in_image", "script"),
    (job(kind="mpi-job"), "job.image.lacks_open_mpi", "image"),
    (job(**MXNET_JOB), "job.image.lacks_mxnet", "image"),
    (job(image="stores"), "job.image.lacks_trainer", "image"),
    (job(**SCRIPT_JOB, image="horovod"), "job.image.lacks_torch", "image"),
    (job(**SCRIPT_JOB, image="etcd", torchrun=False), "job.image.lacks_python", "image"),
    (job(**SCRIPT_JOB, image="horovod", runtime="xla"), "job.image.lacks_xla", "image"),
    (job_on_cluster(runtime="xla"), "job.image.not_built", "image"),
    (on(EKS, **MPI_JOB, image="horovod"), "job.image.not_built", "image"),
    (job(image="trainer"), "job.image.is_default", "image"),
    (on(GKE, recipe=None, script="/bucket/train.py"), "job.script.in_bucket", "script"),
    (on(GKE, flags={"data_dir": "/bucket"}), "job.bucket.no_folder", "flags.data_dir"),
    (
        on(GKE, recipe="imagenet", flags={"fake_data": False, "data_dir": "gs://a/b", "cache-dir": "/bucket/cache"}),
        "job.bucket.no_folder",
        "flags.cache-dir",
    ),
    (on(GKE, flags={"bucket": "file:///bucket/a"}), "job.bucket.no_folder", "flags.bucket"),
    (on(GKE, **NETWORK_CHECK_JOB, args=["--data=/bucket/a"]), "job.bucket.no_folder", "args.0"),
    (on(CLUSTER_WITH_URL, environment={"DATA": "/bucket/a"}), "job.bucket.no_folder", "environment.DATA"),
    (job(**SCRIPT_JOB), "job.script.not_in_image", "script"),
    (job(**NETWORK_CHECK_JOB, image="stores", torchrun=False), "job.script.not_in_image", "script"),
    (job(**LANGUAGE, flags={"init_from": "/llama"}), "job.init_from.not_in_image", "flags.init_from"),
    (job(**LANGUAGE, flags={"tokenizer": "llama/tokenizer.json"}), "job.tokenizer.not_in_image", "flags.tokenizer"),
    (imagenet(data_dir="/data/imagenet"), "job.data_dir.not_in_image", "flags.data_dir"),
    (
        job(**IMAGENET, runtime="xla", flags={"fake_data": False, "data_dir": TINY}),
        "job.data_dir.not_in_image",
        "flags.data_dir",
    ),
    (bucket("file:///checkpoints"), "job.bucket.read_only", "flags.bucket"),
    (job_on_cluster(flags={"bucket": "file:///home/me"}), "job.bucket.read_only", "flags.bucket"),
    (cached_images("/cache"), "job.cache_dir.read_only", "flags.cache_dir"),
    (cached_images("s3://team/cache"), "job.cache_dir.read_only", "flags.cache_dir"),
    (bucket("file:///tmp/ck", hosts=2), "job.bucket.not_shared_by_hosts", "flags.bucket"),
    (
        bucket("file:///dev/shm/ck", elastic={"min_hosts": 1, "max_hosts": 2}),
        "job.bucket.not_shared_by_hosts",
        "flags.bucket",
    ),
]
"""Configuration, and the code and path of its problem. The path starts below `jobs.0`."""
VALID_IMAGES: list[dict[str, Any]] = [
    job(**MPI_JOB | HOROVOD_JOB),
    job(**MXNET_JOB | HOROVOD_JOB),
    job(**MPI_JOB | {"script": "./images/trainer/network_check.py"}, image="horovod"),
    job(**NETWORK_CHECK_JOB),
    job(recipe=None, script="/opt/trainyard/venv/lib/python3.11/site-packages/timm/a.py"),
    job(**SCRIPT_JOB, interactive=True),
    job_on_cluster(**SCRIPT_JOB),
    imagenet(data_dir="/opt/trainyard/tiny-imagenet/"),
    imagenet(data_dir="tiny-imagenet"),
    imagenet(data_dir="/bucket/imagenet"),
    job(**LANGUAGE, flags={"init_from": "/bucket/llama", "tokenizer": "/bucket/llama/tokenizer.json"}),
    job(**LANGUAGE, flags={"tokenizer": "bpe"}),
    on(GKE, **IMAGENET, flags={"fake_data": False, "data_dir": "s3://team/imagenet"}),
    job_on_cluster(**IMAGENET, flags={"fake_data": False, "data_dir": "/data/imagenet"}),
    job(**IMAGENET, image="trainyard.local/a:1", flags={"fake_data": False, "data_dir": "/data/imagenet"}),
    job(**STORES_JOB, torchrun=False),
    job(**NETWORK_CHECK_JOB, image="xla"),
    job(runtime="xla"),
    job_on_cluster(**MPI_JOB, image="example.com/team/train:1"),
    job_on_cluster(runtime="xla", image="example.com/team/xla:1"),
    job(recipe=None, script="/bucket/train.py"),
    job_on_cluster(**IMAGENET, flags={"fake_data": False, "data_dir": "/bucket/a"}),
    on(CLUSTER_WITH_URL, **SCRIPT_JOB, args=["/buckets/a", "a=/bucket/a"]),
    job(image="example.com/team/train:1"),
    bucket("file:///bucket"),
    bucket("file:///bucket/mine", hosts=2),
    bucket("file:///tmp/ck"),
    bucket(""),
    bucket("s3://team/runs", hosts=2),
    cached_images("/dev/shm"),
    cached_images("/tmp/images"),
    cached_images(""),
    job(recipe="imagenet", flags={"cache_dir": ""}),
]


@pytest.mark.parametrize(("values", "code", "path"), IMAGE_PROBLEMS, ids=code_ids(IMAGE_PROBLEMS))
def test_image_or_folder_problem_has_code_and_path(values: dict[str, Any], code: str, path: str) -> None:
    assert problems_of(values) == [(code, f"jobs.0.{path}")]


@pytest.mark.parametrize("values", VALID_IMAGES, ids=str)
def test_image_and_folders_that_can_run_job_are_accepted(values: dict[str, Any]) -> None:
    assert parse(values).jobs


def test_image_contents_are_known_for_every_image() -> None:
    assert IMAGE_SOFTWARE.keys() == {TRAINER, *BUILTIN_IMAGES}
    assert {name for software in IMAGE_SOFTWARE.values() for name in software} <= SOFTWARE_CODES.keys()


def test_image_software_of_each_job_kind_has_a_problem_code() -> None:
    assert {kind.image_software for kind in KINDS.values() if kind.image_software} <= SOFTWARE_CODES.keys()


@pytest.mark.parametrize("name", [TRAINER, *BUILTIN_IMAGES])
def test_dockerfile_copies_declared_sources_and_data(name: str) -> None:
    image = BUILTIN_IMAGES.get(name, TRAINER_IMAGE)
    lines = (CHECKOUT / image.dockerfile).read_text(encoding="utf-8").rpartition("\nFROM ")[2].splitlines()
    copied = {
        line
        for line in lines
        if line.startswith("COPY ") and not line.startswith("COPY --") and "requirements" not in line
    }
    data = {f"COPY {folder} {folder}" for folder in image.data & {"digits", "sotu"}}
    assert copied == {f"COPY {source} {target}" for source, target in image.sources.items()} | data
    generated = {line.rpartition(" ")[2] for line in lines if line.startswith("RUN python made_images.py ")}
    assert generated == image.data - {"digits", "sotu"}
    assert f"WORKDIR {WORK_FOLDER}" in lines or name == "etcd"


def test_image_contents_have_python_files_and_data_folders() -> None:
    assert python_files("etcd") == data_folders("etcd") == frozenset()
    assert data_folders(TRAINER) == {f"/opt/trainyard/{name}" for name in ("digits", "sotu", "tiny-imagenet")}
    assert data_folders("xla") == {"/opt/trainyard/digits", "/opt/trainyard/sotu"}
    assert data_folders("horovod") == {"/opt/trainyard/digits"}
    for name in (TRAINER, "xla"):
        assert {"/opt/trainyard/network_check.py", "/opt/trainyard/trainer/__main__.py"} < python_files(name)
    assert python_files("stores") == {"/opt/trainyard/serve.py"}


def test_job_on_tpus_with_prebuilt_image_of_the_platform_is_rejected() -> None:
    image = {"prebuilt": f"example.com/trainer@sha256:{'0' * 64}"}
    platform = {**GKE, "zone": "us-central2-b", "pools": [{"name": "tpus", "accelerator": "v4-8"}], "image": image}
    values = on(platform, accelerator="v4-8")
    config = StackConfig.model_validate(values, strict=False)
    assert [each.code for each in configuration_conflicts(config.cloud, config.jobs)] == ["job.image.not_built"]


def script(path: str, **changes: Any) -> dict[str, Any]:
    """Return a configuration with a job that runs a script."""
    return job(recipe=None, script=path, **changes)


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a project folder with scripts and two symbolic links, one of them to a file outside the folder."""
    folder = tmp_path / "checkout"
    for name in ("train.py", "my train.py", "README.md", "deep/train_2.py"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("print(1)\n", encoding="utf-8")
    (tmp_path / "outside.py").write_text("print(1)\n", encoding="utf-8")
    (folder / "link.py").symlink_to(tmp_path / "outside.py")
    (folder / "inside.py").symlink_to(folder / "train.py")
    monkeypatch.setenv(PROJECT_VARIABLE, str(folder))
    return folder


@pytest.mark.usefixtures("checkout")
@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("gs://b/x.py", "url"),
        ("~/x.py", "home"),
        ("-c", "option"),
        ("/opt/train.py --epochs 3", "blank"),
        ("/opt/run.sh", "other_file"),
        ("/opt/train\0.py", "control_character"),
        ("./README.md", "not_python"),
        ("./my train.py", "file_name"),
        ("../outside.py", "outside"),
        ("./link.py", "outside"),
        ("train.py", "without_dot"),
    ],
)
def test_script_not_runnable_in_pods_has_code_and_path(path: str, code: str) -> None:
    assert problems_of(script(path)) == [(f"job.script.{code}", "jobs.0.script")]


@pytest.mark.parametrize("platform", [{"kind": "local"}, GKE])
def test_script_with_syntax_error_has_code_and_line(checkout: Path, platform: dict[str, Any]) -> None:
    values = on(platform, recipe=None, script="./train.py")
    (checkout / "train.py").write_text("print('\\d')\n", encoding="utf-8")
    assert parse(values).jobs[0].script == "./train.py"
    (checkout / "train.py").write_text("import torch\nfor step in range(3)\n", encoding="utf-8")
    assert problems_of(values) == [("job.script.syntax", "jobs.0.script")]
    assert "for Python 3.11 in line 2: expected ':'" in "".join(error_lines(values))


def test_script_with_a_byte_order_mark_is_accepted(checkout: Path) -> None:
    (checkout / "train.py").write_text("print(1)\n", encoding="utf-8-sig")
    assert parse(on({"kind": "local"}, recipe=None, script="./train.py")).jobs[0].script == "./train.py"


def test_script_for_a_newer_python_or_a_user_image_is_not_parsed(checkout: Path) -> None:
    (checkout / "train.py").write_text("type Rows = list[int]\n", encoding="utf-8")
    newer = {**GKE, "image": {"python_version": "3.13"}}
    assert parse(on(newer, recipe=None, script="./train.py")).jobs[0].script == "./train.py"
    assert parse(on(GKE, recipe=None, script="./train.py", image="team/train:1")).jobs[0].script == "./train.py"


def test_script_absolute_path_in_checkout_is_rejected_for_builtin_image(checkout: Path) -> None:
    path = str(checkout / "deep" / "train_2.py")
    for image in (None, "frameworks"):
        assert problems_of(script(path, image=image)) == [("job.script.without_dot", "jobs.0.script")]
    assert parse(script(path, image="trainyard.local/a:1")).jobs[0].script == path


def test_script_misspelled_suggests_script_of_image() -> None:
    (line,) = error_lines(script("/opt/trainyard/network_chek.py"))
    assert "write /opt/trainyard/network_check.py" in line


@pytest.mark.usefixtures("checkout")
@pytest.mark.parametrize("path", ["./train.py", "./deep/train_2.py", "./inside.py"])
def test_script_of_checkout_is_accepted(path: str) -> None:
    assert parse(script(path)).jobs[0].script == path


@pytest.mark.parametrize("path", ["/opt/train.py", "/opt/train", "train.py"])
def test_script_of_image_is_accepted(path: str) -> None:
    assert parse(script(path, image="trainyard.local/a:1")).jobs[0].script == path


@pytest.mark.parametrize("path", ["./llama", "meta-llama/Llama-3.2-1B"])
def test_missing_weights_error_names_the_place_to_copy_them_to(path: str) -> None:
    (line,) = error_lines(job(**LANGUAGE, flags={"init_from": path}))
    assert "copy it into the folder in the stack's output `bucket_url`, and write its path below /bucket" in line
    assert line.endswith("; the trainer downloads nothing from Hugging Face's Hub")
    (line,) = error_lines(on(GKE, **LANGUAGE, flags={"init_from": path}))
    assert "copy it into a bucket and write its URL (s3:// or gs://)" in line
