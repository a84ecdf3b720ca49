"""Data of a job: a folder of this machine, or a path in a bucket; its rules, and its flags of a recipe. Pure."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from settings.problem import Invalid, Problem
from workloads.spec import JobSpec
from workloads.trainer_flags import value_of

DATA_VARIABLE = "TRAINYARD_DATA"
"""Environment variable of pods with the path or URL of the job's data. The recipes read it too."""
DATA_PATH = "/data"
"""Path of the data in pods, if it is a folder of this machine."""
BUCKET_REFERENCE = "$(TRAINYARD_BUCKET)"
"""URL of the stack's bucket in a variable of a pod, which Kubernetes expands."""
HIDDEN_FOLDERS = ("/dev", "/proc", "/run", "/sys", "/var/lib", "/var/log")
"""Folders of this machine that nodes do not see as they are (infra/local/node.py)."""
USER = 1000
"""User and group of the pods (workloads/pod.py)."""
_URL = re.compile(r"(gs|s3)://[a-z0-9][-._a-z0-9]{1,220}(/[^?#*\x00-\x20\x7f]*)?")
_BUCKET_PATH = re.compile(r"[^/?#*:\x00-\x20\x7f][^?#*:\x00-\x20\x7f]*")


@dataclass(frozen=True, kw_only=True)
class DataSource:
    """Place of a job's data."""

    location: str
    """Value of DATA_VARIABLE in its pods."""
    folder: Path | None = None
    """Folder of this machine to mount at DATA_PATH; None for data in a bucket."""


def data_conflicts(spec: JobSpec) -> Iterator[Problem]:
    """Yield a problem for each flag that `data` sets or contradicts."""
    if spec.data is None or spec.recipe is None:
        return
    if value := value_of(spec.recipe, spec.flags, "data_dir"):
        key = next(name for name in spec.flags if name.replace("-", "_") == "data_dir")
        message = "is set by the job's `data`; remove one of the two"
        yield Problem("job.data_dir.also_data", ("flags", key), message, value)
    if value_of(spec.recipe, spec.flags, "fake_data") is True:
        message = "has no effect on synthetic images; remove it, or remove the flag `fake_data`"
        yield Problem("job.data.synthetic_images", ("data",), message, spec.data)


def generates_images(spec: JobSpec) -> bool:
    """Return True if the recipe `imagenet` generates its images: by default, unless the job has `data`."""
    fake = value_of(spec.recipe, spec.flags, "fake_data") if spec.recipe else None
    return fake is not False and (fake is not None or spec.data is None)


def data_flags(spec: JobSpec) -> tuple[str, ...]:
    """Return the flags of a recipe that `data` sets. Kubernetes expands the variable."""
    if spec.data is None or spec.recipe is None:
        return ()
    reads_files = spec.recipe == "imagenet" and value_of(spec.recipe, spec.flags, "fake_data") is None
    return (f"--data-dir=$({DATA_VARIABLE})", *(["--no-fake-data"] if reads_files else []))


def folder_source(data: str, project: Path) -> DataSource:
    """Return the data in a folder of this machine, relative to the project. Raises Invalid."""
    if "://" in data:
        raise Invalid(
            "data_url_on_local",
            "is a URL, which pods on this machine cannot reach; write a folder of this machine, such as ./data",
        )
    if data.startswith("~"):
        raise Invalid("data_home", f"starts with ~, which no shell expands here; write {Path(data).expanduser()}")
    folder = (project / data).resolve()
    if not folder.is_dir():
        raise Invalid(
            "data_absent",
            f"is not a folder: {folder} does not exist or is a file; create it, or write another, such as ./data",
        )
    hidden = next((each for each in HIDDEN_FOLDERS if folder.is_relative_to(each)), None)
    if hidden or folder == Path("/"):
        place = f"in {hidden}" if hidden else "the root folder"
        raise Invalid(
            "data_hidden", f"is {place}, which nodes on this machine do not share; copy the data to another folder"
        )
    if not _is_readable(folder):
        raise Invalid("data_unreadable", f"{folder} is not readable for the user of pods; run `chmod -R a+rX {folder}`")
    return DataSource(location=DATA_PATH, folder=folder)


def _is_readable(folder: Path) -> bool:
    """Return True if the user of pods can list a folder and open its files. The folders above do not matter."""
    found = folder.stat()
    shift = 6 if found.st_uid == USER else 3 if found.st_gid == USER else 0
    return (found.st_mode >> shift) & 0o5 == 0o5


def bucket_source(spec: JobSpec, data: str, *, bucket_folder: str | None) -> DataSource:
    """Return the data in a bucket. Raises Invalid.

    `bucket_folder` is the path of the stack's bucket in pods, or None if the bucket is an object store.
    """
    if data.startswith(("/", "./", "../", "~")) or posixpath.normpath(data).startswith(".."):
        raise Invalid(
            "data_folder_in_cloud",
            "is a folder of this machine, which the nodes of this platform cannot mount; copy it into the stack's "
            f"bucket (docs/data.md) and write its path there, `data: {_example(data)}`, or write a gs:// or s3:// URL",
        )
    if "://" in data:
        if not _URL.fullmatch(data) or "::" in data:
            raise Invalid(
                "data_url", "must be the URL of a folder in a bucket; write gs://BUCKET/FOLDER or s3://BUCKET/FOLDER"
            )
    elif not _BUCKET_PATH.fullmatch(data):
        raise Invalid(
            "data_bucket_path", "must be a path in the stack's bucket without spaces, '?', '#', '*' and ':'; rename it"
        )
    if spec.recipe == "digits" and ("://" in data or bucket_folder is None):
        raise Invalid(
            "digits_in_bucket", "recipe digits reads a folder, not a bucket; the digits are in the image; remove it"
        )
    if "://" in data:
        return DataSource(location=data)
    return DataSource(location=f"{BUCKET_REFERENCE if bucket_folder is None else bucket_folder}/{data.strip('/')}")


def _example(data: str) -> str:
    return posixpath.basename(posixpath.normpath(data)).strip("~.") or "data"
