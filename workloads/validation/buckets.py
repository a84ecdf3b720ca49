"""Validation of paths below the bucket's mount folder, which only some platforms have. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from settings.problem import Path, Problem
from workloads.pod_folders import BUCKET_PATH, is_below
from workloads.spec import JobSpec


def bucket_conflicts(spec: JobSpec, scheme: str) -> Iterator[Problem]:
    """Yield a problem for each path below the mount folder in a job whose bucket is a URL of `scheme`, so is not
    mounted."""
    why = "no pod has /bucket here, where the bucket is an object store"
    if spec.script and _below(spec.script) is not None:
        message = f"{why}; write a path in the image, or ./ and one in this checkout"
        yield Problem("job.script.in_bucket", ("script",), message, spec.script)
    values: dict[Path, object] = {
        **{("args", index): word for index, word in enumerate(spec.args)},
        **{("flags", name): value for name, value in spec.flags.items()},
        **{("environment", name): value for name, value in spec.environment.items()},
    }
    for key, value in values.items():
        # An argument is a path, or a flag with a path as its value.
        path = _below(str(value).partition("=")[2] if str(value).startswith("-") else str(value))
        if path is None:
            continue
        name = ".".join(map(str, key)).replace("-", "_")
        if name == "flags.cache_dir":
            remedy = "write a folder of the host, such as /dev/shm"
        elif name == "flags.data_dir" and spec.recipe == "digits":
            remedy = "the digits are in the image; remove it"
        else:
            remedy = f"write its URL, {scheme}://NAME{path} (`pulumi stack output bucket_url` says NAME)"
        yield Problem("job.bucket.no_folder", key, f"{why}; {remedy}", value)


def _below(text: str) -> str | None:
    """Return the rest of a path below the mount folder, or None for any other text."""
    path = text.removeprefix("file://")
    return path.removeprefix(BUCKET_PATH) if is_below(path, BUCKET_PATH) else None
