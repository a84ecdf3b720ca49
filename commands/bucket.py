"""List, move, delete and copy files of a stack's bucket. `fetch` copies a job's results.

Buckets in a cloud need `gcloud` or `aws`. They have not yet been tested.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from commands.environment import PROJECT
from commands.interrupts import CommandError, describe_file_error, set_closing
from commands.monitor.cluster import StackOutputs, Unreachable, job_named, outputs_with
from commands.output_file import make_output_folder
from commands.stack_settings import read_settings
from infra.make_command import DEFAULT_STACK, make_command, option_text
from workloads.command import BUCKET_PATH

FOLDER_SCHEME = "file"
"""URL scheme of a bucket that is a folder."""
LIST_COMMANDS = {"gs": ("gcloud", "storage", "ls"), "s3": ("aws", "s3", "ls")}
"""Scheme of a bucket in a cloud -> command that lists a folder."""
COPY_COMMANDS = {"gs": ("gcloud", "storage", "cp", "--recursive"), "s3": ("aws", "s3", "cp", "--recursive")}
READ_COMMANDS = {"gs": ("gcloud", "storage", "cat"), "s3": ("aws", "s3", "cp")}
DELETE_COMMANDS = {"gs": ("gcloud", "storage", "rm", "--recursive"), "s3": ("aws", "s3", "rm", "--recursive")}
MOVE_COMMANDS = {"gs": ("gcloud", "storage", "mv"), "s3": ("aws", "s3", "mv", "--recursive")}
"""Commands that move the objects of a folder one by one:
https://cloud.google.com/sdk/gcloud/reference/storage/mv, https://docs.aws.amazon.com/cli/latest/reference/s3/mv.html"""
CHECKPOINT_NAME = re.compile(r"step-\d{9}")
"""Name of a checkpoint's folder (trainer/checkpoints/checkpoint.py)."""
RECORD_FILE = "run-record.json"
"""File name of the run record in a job's folder. The commands write this file."""
MANIFEST = "checkpoint.json"
"""Name of the file that the trainer writes last into a checkpoint (trainer/checkpoints/tensor_files.py)."""

EARLIER_FOLDER = "earlier"
"""Subfolder of a job's folder. Each `rerun --fresh` moves the job's earlier curves into a new folder there."""
EARLIER_TIME_FORMAT = "%Y%m%dT%H%M%SZ"
"""Format of the folder names in EARLIER_FOLDER: the time of the rerun in UTC."""
CURVE_FOLDERS = ("metrics", "tensorboard")
"""Subfolders of a job's folder with the job's curves. Each run adds points to the curves."""
TOKENIZER_FOLDER = "tokenizer"
"""Subfolder of a job's folder with the tokenizer of its checkpoints (trainer/language/tokenizer.py)."""


class BucketError(CommandError):
    """Bucket that cannot be read or changed."""


@dataclass(frozen=True, kw_only=True)
class Bucket:
    """Bucket of a stack."""

    url: str
    is_cluster_local: bool
    """True if the cluster is on this machine. Otherwise a `file://` bucket is a volume in the cluster."""

    @classmethod
    def of(cls, outputs: Mapping[str, Any], *, is_cluster_local: bool) -> Bucket:
        """Return the bucket in a stack's outputs."""
        return cls(url=str(outputs.get("bucket_url") or "").rstrip("/"), is_cluster_local=is_cluster_local)

    @property
    def scheme(self) -> str:
        """Scheme of the URL."""
        return self.url.partition("://")[0]

    @property
    def problem(self) -> str:
        """Reason why this machine cannot reach the bucket; empty if it can."""
        if self.scheme in COPY_COMMANDS or (self.scheme == FOLDER_SCHEME and self.is_cluster_local):
            return ""
        return (
            f"the bucket {self.url or 'of the stack'} is a volume in the cluster, which this machine cannot reach; "
            "use `kubectl cp` or `kubectl exec` with a running pod"
        )

    def location(self, folder: str) -> str:
        """Return the URL of a folder in the bucket, or its path if the bucket is a folder of this machine."""
        return f"{self.url.removeprefix('file://') if self.is_cluster_local else self.url}/{folder}"

    def names(self, folder: str) -> list[str]:
        """Return the names in a folder, sorted; empty if it does not exist. Raises BucketError."""
        self._check()
        if self.scheme == FOLDER_SCHEME:
            path = Path(self.location(folder))
            return sorted(each.name for each in path.iterdir()) if path.is_dir() else []
        done = _run(*LIST_COMMANDS[self.scheme], f"{self.url}/{folder}/")
        lines = [line.split()[-1].rstrip("/") for line in done.splitlines() if line.strip()]
        return sorted(line.rpartition("/")[2] for line in lines)

    def read(self, path: str) -> str:
        """Return the text of a file; empty if it does not exist. Raises BucketError."""
        folder, _, name = path.rpartition("/")
        if name not in self.names(folder):
            return ""
        if self.scheme != FOLDER_SCHEME:
            return _run(*READ_COMMANDS[self.scheme], f"{self.url}/{path}", *(["-"] if self.scheme == "s3" else []))
        try:
            return Path(self.location(path)).read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            raise BucketError(f"{self.location(path)}: cannot be read: {describe_file_error(error)}") from error

    def newest_checkpoint(self, folder: str) -> str:
        """Return the name of the newest complete checkpoint in a folder; empty for none. Raises BucketError."""
        saved = [name for name in reversed(self.names(folder)) if CHECKPOINT_NAME.fullmatch(name)]
        return next((name for name in saved if MANIFEST in self.names(f"{folder}/{name}")), "")

    def copy(self, folder: str, to: Path) -> None:
        """Copy a folder of the bucket into the folder `to`. Leave no incomplete files. Raises BucketError."""
        self._check()
        name = folder.rpartition("/")[2]
        try:
            to.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(prefix=".copying-", dir=to) as scratch:
                copied = Path(scratch) / name
                copied.mkdir()
                self._copy_all(folder, copied)
                _move_files(copied, to / name)
        except OSError as error:
            raise BucketError(
                f"{self.location(folder)}: cannot be copied to {to / name}: {describe_file_error(error)}"
            ) from error

    def _copy_all(self, folder: str, copied: Path) -> None:
        """Copy a folder of the bucket into an empty folder of the same name. Raises BucketError, OSError."""
        if self.scheme == FOLDER_SCHEME:
            _copy_files(Path(self.location(folder)), copied, Path(self.location("")))
        elif self.scheme == "gs":
            # gcloud creates the copied folder inside an existing target folder.
            _run(*COPY_COMMANDS["gs"], f"{self.url}/{folder}", str(copied.parent))
        else:
            _run(*COPY_COMMANDS[self.scheme], f"{self.url}/{folder}", str(copied))

    def contains(self, path: Path) -> bool:
        """Return True if a path of this machine is in the bucket, or is its root."""
        is_folder = self.scheme == FOLDER_SCHEME and self.is_cluster_local
        return is_folder and path.resolve().is_relative_to(Path(self.location("")).resolve())

    def delete(self, folder: str) -> None:
        """Delete a folder of the bucket. Raises BucketError."""
        self._check()
        if self.scheme != FOLDER_SCHEME:
            # Without the slash, S3 would also delete folders whose names begin with this one.
            _run(*DELETE_COMMANDS[self.scheme], f"{self.url}/{folder}{'/' if self.scheme == 's3' else ''}")
            return
        try:
            shutil.rmtree(self.location(folder))
        except FileNotFoundError:
            return
        except OSError as error:
            raise BucketError(f"{self.location(folder)}: cannot be deleted: {describe_file_error(error)}") from error

    def move(self, folder: str, to: str) -> None:
        """Move a folder of the bucket to a path that does not exist yet. Raises BucketError."""
        self._check()
        if self.scheme != FOLDER_SCHEME:
            end = "/" if self.scheme == "s3" else ""
            _run(*MOVE_COMMANDS[self.scheme], f"{self.url}/{folder}{end}", f"{self.url}/{to}{end}")
            return
        try:
            Path(self.location(to)).parent.mkdir(parents=True, exist_ok=True)
            Path(self.location(folder)).rename(self.location(to))
        except OSError as error:
            raise BucketError(
                f"{self.location(folder)}: cannot be moved to {self.location(to)}: {describe_file_error(error)}"
            ) from error

    def put_curves_aside(self, folder: str) -> str:
        """Move a job's curves to a new folder in EARLIER_FOLDER. Return that folder; empty if the job has no curves."""
        found = [name for name in self.names(folder) if name in CURVE_FOLDERS]
        to = f"{folder}/{EARLIER_FOLDER}/{time.strftime(EARLIER_TIME_FORMAT, time.gmtime())}"
        for name in found:
            self.move(f"{folder}/{name}", f"{to}/{name}")
        return to if found else ""

    def _check(self) -> None:
        if self.problem:
            raise BucketError(self.problem)


def _copy_files(source: Path, target: Path, bucket: Path) -> None:
    """Copy a folder of the bucket into an empty one. Raises OSError with the name of the file.

    Follows links. In a link, BUCKET_PATH stands for the bucket, because pods see the bucket there. Skips a link if its
    target does not exist or contains the link.
    """
    for found in sorted(source.iterdir()):
        copied = target / found.name
        content = _link_target(found, bucket) if found.is_symlink() else found
        if not content.exists() or source.resolve().is_relative_to(content.resolve()):
            problem = "the link's target does not exist or contains the link; the link is not copied"
            print(f"warning: {found}: {problem}", file=sys.stderr)
            continue
        try:
            if not content.is_dir():
                shutil.copy2(content, copied)
                continue
            copied.mkdir()
        except OSError as error:
            # The error may name no file, or a file in the temporary folder, which the user does not know.
            raise OSError(error.errno, error.strerror or str(error), found.name) from error
        _copy_files(content, copied, bucket)


def _link_target(link: Path, bucket: Path) -> Path:
    """Return the path on this machine to which a link in the bucket leads."""
    target = link.readlink()
    is_in_bucket = target.is_relative_to(BUCKET_PATH)
    return bucket / target.relative_to(BUCKET_PATH) if is_in_bucket else link.parent / target


def _move_files(source: Path, target: Path) -> None:
    """Move the files of a folder into another. Move manifests last: only a manifest makes a checkpoint complete."""
    if not target.exists():
        source.replace(target)
        return
    for file in sorted(source.rglob("*"), key=lambda each: (each.name == MANIFEST, each)):
        moved = target / file.relative_to(source)
        if file.is_dir():
            moved.mkdir(parents=True, exist_ok=True)
        else:
            file.replace(moved)


def _run(*words: str) -> str:
    """Run a cloud's command. Return its output; empty for a folder that does not exist."""
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise BucketError(f"`{words[0]}` is not installed; install it to reach the bucket") from error
    if done.returncode != 0:
        # `aws s3 ls` fails without a message if the folder does not exist.
        if "matched no objects" in done.stderr or (words[:3] == LIST_COMMANDS["s3"] and not done.stderr.strip()):
            return ""
        problem = done.stderr.strip() or f"exit status {done.returncode}"
        raise BucketError(f"`{' '.join(words)}` failed: {problem}; check your login and your permissions")
    return done.stdout


def fresh_start(names: Sequence[str]) -> str:
    """Return the time of the newest `rerun --fresh` that moved curves; empty if no rerun did.

    `names` are the names in EARLIER_FOLDER.
    """
    for name in sorted(names, reverse=True):
        with suppress(ValueError):
            return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.strptime(name, EARLIER_TIME_FORMAT))
    return ""


OUTPUTS = ("kubeconfig_path", "namespace", "jobs", "run_records", "bucket_url")
"""Outputs of a stack that locate its jobs and their files."""


def fetch(job: str, to: Path | None, *, should_copy_all: bool, as_json: bool) -> int:
    """Copy the newest checkpoint (or all) and the job's folder with its metrics and run record. Print the paths."""
    stack = os.environ.get("STACK", DEFAULT_STACK)
    found = outputs_with(stack, *OUTPUTS)
    set_closing("the folder has no incomplete files; run the command again to copy everything")
    read = StackOutputs.of(stack, found)
    name = job_named(read, job, "fetch")
    config = read_settings(PROJECT / f"Pulumi.{stack}.yaml")
    bucket = Bucket.of(found, is_cluster_local=config.cloud.nodes_here > 0)
    # After `up --no-follow`, the job's record may be incomplete. Import late: that module imports this module.
    from commands.job_results import update_records

    update_records(read, config, found, [name])
    folder = to or Path(name)
    try:
        copied = copy_results(bucket, found["run_records"][name], folder, should_copy_all=should_copy_all)
    except OSError as error:
        raise BucketError(f"{folder}: cannot be written ({error.strerror}); {_other_folder()}") from error
    if not copied:
        record = found["run_records"][name]
        places = " or ".join(bucket.location(record[key]) for key in ("checkpoints", "bucket_prefix"))
        problem = f"job {name} has written nothing to {places} yet"
        try:
            read.cluster().jobs([name])
        except Unreachable as error:
            raise BucketError(f"{problem}, and {error.report()}") from error
        raise BucketError(f"{problem}; {make_command('logs', JOB=name)} shows its progress")
    paths = [str(path.resolve()) for path in copied]
    print(json.dumps({"job": name, "copied": paths}, indent=2) if as_json else "\n".join(paths))
    return 0


def _other_folder() -> str:
    return f"name another folder with `{option_text('TO', 'FOLDER')}`"


def copy_results(bucket: Bucket, record: dict[str, str], to: Path, *, should_copy_all: bool) -> list[Path]:
    """Copy a job's results. Return the paths of the copies; empty if the job has written nothing."""
    copied = []
    newest, names = bucket.newest_checkpoint(record["checkpoints"]), bucket.names(record["checkpoints"])
    prefix = record["bucket_prefix"]
    if not names and not {*bucket.names(prefix)} - {RECORD_FILE}:
        return []
    if any(bucket.contains(each) for each in (to, to / "checkpoints", to / prefix.rpartition("/")[2])):
        raise BucketError(f"{to}: is in the stack's bucket {bucket.location('')}; {_other_folder()}")
    is_new = not to.exists()
    make_output_folder(to)
    if names and not is_new:
        make_output_folder(to / "checkpoints")
    if names and (should_copy_all or not newest):
        # The names of a user script's checkpoints do not show which one is the newest.
        bucket.copy(record["checkpoints"], to / "checkpoints")
        copied.append(to / "checkpoints" / record["checkpoints"].rpartition("/")[2])
        if earlier := sorted(each.name for each in copied[0].iterdir() if each.name not in names):
            problem = f"{copied[0]}: has files of an earlier copy that are not in the bucket: {', '.join(earlier)}"
            print(f"warning: {problem}; delete them, or {_other_folder()}", file=sys.stderr)
    elif newest:
        bucket.copy(f"{record['checkpoints']}/{newest}", to / "checkpoints")
        later = [each.name for each in (to / "checkpoints").glob("step-*") if each.name > newest]
        if later:
            problem = f"{to / 'checkpoints'}: {max(later)} belongs to an earlier run; delete it, or {_other_folder()}"
            print(f"warning: {problem}", file=sys.stderr)
        copied.append(to / "checkpoints" / newest)
    if bucket.names(prefix):
        target = to / prefix.rpartition("/")[2]
        if not is_new:
            make_output_folder(target)
        bucket.copy(prefix, to)
        copied.append(target)
    return copied
