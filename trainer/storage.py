"""Read and write folders on a disk or in a bucket, through fsspec. Also defines the layout of a bucket."""

from __future__ import annotations

import io
import os
import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import IO, Any, TypeVar, cast

import fsspec
from fsspec.implementations.local import LocalFileSystem

from trainer.exit_codes import StorageError
from trainer.rules import CHECKPOINTS, PROFILES

UNFINISHED_SUFFIX = ".unfinished"
"""Suffix of the name of an incomplete file."""
BUCKET_SCHEMES = ("gs", "s3")
"""Schemes of the URLs of buckets. obstore is the client for both, because it retries failed requests."""
CLIENT_TIMEOUTS = {"AWS_TIMEOUT": "1d", "AWS_READ_TIMEOUT": "30s", "GOOGLE_TIMEOUT": "1d", "GOOGLE_READ_TIMEOUT": "30s"}
"""Variables of obstore's clients, which by default end a request after 30 s although content still arrives."""
ATTEMPTS = 3
"""Maximum number of attempts at a request to a bucket. The client also retries within each attempt."""
RETRY_LIMIT_SECONDS = 60.0
"""Seconds after which no further attempt starts. If a bucket does not answer, one attempt takes three minutes."""
RETRY_PAUSE_SECONDS = 0.5
"""Seconds before the second attempt. Each later pause is twice as long."""
METADATA_SERVER_PATHS = re.compile(r"/latest/api/token|/computeMetadata/")
"""Paths from which a bucket's client requests credentials if no variable provides them."""
CREDENTIAL_VARIABLES = {"s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY", "gs": "GOOGLE_APPLICATION_CREDENTIALS"}
"""Scheme of a bucket's URL -> variables with credentials."""
PERMANENT_ERRORS = (FileNotFoundError, PermissionError, NotADirectoryError, IsADirectoryError)
"""Errors that a retry does not fix."""
Answer = TypeVar("Answer")


class MissingFileError(StorageError):
    """A file does not exist, although the storage works."""


@dataclass(frozen=True, kw_only=True)
class FileFacts:
    """Facts about a file that are known without reading it."""

    size: int
    """Size in bytes."""
    version: str
    """Modification time, or ETag in a bucket. It changes when the file is written again."""


def _facts(info: dict[str, Any]) -> FileFacts:
    """Convert fsspec's facts: a disk has `mtime`, and obstore's buckets have `e_tag`."""
    return FileFacts(size=info["size"], version=str(info.get("e_tag") or info.get("mtime") or ""))


def _local_facts(path: str) -> FileFacts:
    try:
        found = os.stat(path)  # noqa: PTH116  # strings are faster than paths for sets of many files
    except OSError:  # a dangling link: reading it raises an error with its name
        return FileFacts(size=0, version="")
    return FileFacts(size=found.st_size, version=str(found.st_mtime_ns))


class Folder:
    """A folder on a disk or in a bucket. Its methods raise StorageError with the file's name if the storage fails."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        self._is_bucket = self.url.startswith(tuple(f"{scheme}://" for scheme in BUCKET_SCHEMES))
        if self._is_bucket:
            # Imported here, because a run on a disk does not need this module.
            from obstore.fsspec import register

            register(BUCKET_SCHEMES)
            os.environ.update(CLIENT_TIMEOUTS | dict(os.environ))
        try:
            filesystem, path = fsspec.url_to_fs(self.url)
        except (ValueError, ImportError) as error:
            raise StorageError(
                f"bucket {url!r} cannot be used ({error}); must be file:///FOLDER, gs://BUCKET/FOLDER or "
                "s3://BUCKET/FOLDER; use such a URL"
            ) from None
        self._filesystem: Any = filesystem
        self.path: str = path
        """The path on a disk, or the folder's name in its bucket."""
        self.is_local = isinstance(filesystem, LocalFileSystem)

    def child(self, name: str) -> Folder:
        """Return a folder in this folder."""
        return Folder(f"{self.url}/{name}")

    def names(self) -> list[str]:
        """Return the names of the files and folders in the folder, or nothing if it does not exist."""
        return sorted(_last_part(path) for path in self._list(detail=False))

    def folders(self) -> list[str]:
        """Return the names of the folders in the folder, or nothing if it does not exist."""
        return sorted(
            _last_part(info["name"])
            for info in self._list(detail=True)
            # On a disk an entry may be a link to a folder.
            if info["type"] == "directory" or (self.is_local and os.path.isdir(info["name"]))  # noqa: PTH112  # fsspec's path
        )

    def _list(self, *, detail: bool) -> list[Any]:
        """Return fsspec's listing of the folder: paths, or facts about each path if `detail` is True."""
        try:
            with self._translate_errors("cannot be listed", ""):
                self._filesystem.invalidate_cache()
                return self._retry(lambda: cast("list[Any]", self._filesystem.ls(self.path, detail=detail)))
        except MissingFileError:
            return []

    def age(self, name: str) -> float:
        """Return the seconds since a file was written, or infinity if it does not exist.

        The result is at least 0, even if the clocks of the storage and of this machine differ.
        """
        try:
            with self._translate_errors("cannot be read", name):
                written = float(self._filesystem.modified(f"{self.path}/{name}").timestamp())
                return max(0.0, time.time() - written)
        except MissingFileError:
            return float("inf")

    def read(self, name: str) -> bytes:
        """Return the content of a file."""
        with self._translate_errors("cannot be read", name):
            return self._retry(lambda: cast("bytes", self._filesystem.cat_file(f"{self.path}/{name}")))

    def read_part(self, name: str, start: int, size: int) -> bytes:
        """Return a range of bytes of a file."""
        with self._translate_errors("cannot be read", name):
            path = f"{self.path}/{name}"
            return self._retry(lambda: cast("bytes", self._filesystem.cat_file(path, start=start, end=start + size)))

    def files(self, below: str, *, heartbeat: Callable[[], None] = lambda: None) -> dict[str, FileFacts]:
        """Return all files below a subfolder, by path in this folder. Follows links. Calls `heartbeat` per folder."""
        start, cut = f"{self.path}/{below}", len(f"{self.path}/")
        local_walk: Any = partial(os.walk, onerror=_raise_not_listed, followlinks=True)
        walk = local_walk if self.is_local else partial(self._filesystem.walk, detail=True)

        def find() -> dict[str, FileFacts]:
            found = {}
            for place, _, files in walk(start):
                heartbeat()
                for name in files:
                    path = f"{place}/{name}"
                    found[path[cut:]] = _local_facts(path) if self.is_local else _facts(files[name])
            return dict(sorted(found.items()))

        with self._translate_errors("cannot be listed", below):
            return self._retry(find)

    def facts(self, name: str) -> FileFacts:
        """Return size and version of a file."""
        with self._translate_errors("cannot be read", name):
            return _facts(self._retry(lambda: self._filesystem.info(f"{self.path}/{name}")))

    def open(self, name: str) -> IO[bytes]:
        """Open a file to read it, with seek. A file in a bucket is read into memory."""
        if not self.is_local:
            return io.BytesIO(self.read(name))
        with self._translate_errors("cannot be read", name):
            return cast("IO[bytes]", self._filesystem.open(f"{self.path}/{name}", "rb"))

    def write(self, name: str, content: bytes) -> None:
        """Write a file atomically: after a crash it has the old or the new content."""
        if self.is_local:
            with self.writing(name) as file:
                write_all(file, memoryview(content))
            return
        with self._translate_errors("cannot be written", name):
            # An object store shows an object only once it is complete.
            self._retry(lambda: self._filesystem.pipe_file(f"{self.path}/{name}", content))

    @contextmanager
    def writing(self, name: str) -> Iterator[IO[bytes]]:
        """Return a context to write a file piece by piece. On a disk the file exists only if the block succeeds."""
        target = f"{self.path}/{name}"
        with self._translate_errors("cannot be written", name):
            if not self.is_local:
                with self._filesystem.open(target, "wb", buffer_size=2**25) as file:  # S3 allows 10,000 parts
                    yield file
                return
            self._filesystem.makedirs(self.path, exist_ok=True)
            draft = target + UNFINISHED_SUFFIX
            # Do not use fsspec's own file: after an error during a write, it would leave partial content in `target`.
            with open(draft, "wb", buffering=0) as file:  # noqa: PTH123  # fsspec's path
                yield cast("IO[bytes]", file)
                os.fsync(file.fileno())
            os.replace(draft, target)  # noqa: PTH105  (two strings)
            # Make the rename survive a crash of the machine.
            descriptor = os.open(self.path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def append(self, name: str) -> IO[str]:
        """Open a text file on a disk to append to it."""
        with self._translate_errors("cannot be written", name):
            self._filesystem.makedirs(self.path, exist_ok=True)
            return cast("IO[str]", self._filesystem.open(f"{self.path}/{name}", "a", encoding="utf-8"))

    def upload(self, local_path: str, name: str) -> None:
        """Copy a local file into the folder."""
        with self._translate_errors("cannot be written", name):
            self._filesystem.makedirs(self.path, exist_ok=True)
            self._retry(lambda: self._filesystem.put_file(local_path, f"{self.path}/{name}"))

    def delete(self, name: str, *, first: str = "") -> None:
        """Delete a file, or a folder with its content, if it exists. In a folder, begin with the file `first`.

        For a link on a disk, delete only the link.
        """
        path = f"{self.path}/{name}"
        if self.is_local and os.path.islink(path):  # noqa: PTH114  # a path of fsspec
            with self._translate_errors("cannot be deleted", name):
                os.unlink(path)  # noqa: PTH108  # as above
            return
        delete = self._delete_objects if self._is_bucket else partial(self._filesystem.rm, recursive=True)
        for each in (f"{name}/{first}", name) if first else (name,):
            with suppress(MissingFileError), self._translate_errors("cannot be deleted", each):
                self._retry(partial(delete, f"{self.path}/{each}"))

    def _delete_objects(self, path: str) -> None:
        # fsspec's `rm` would also delete the folder's own name. Google answers 404 to a request for a missing object,
        # and fsspec then cancels the other deletions: https://cloud.google.com/storage/docs/xml-api/delete-object
        def delete(file: str) -> None:
            with suppress(FileNotFoundError):
                self._filesystem.rm_file(file)

        with ThreadPoolExecutor() as threads:
            list(threads.map(delete, self._filesystem.find(path) or [path]))

    def _retry(self, request: Callable[[], Answer]) -> Answer:
        """Send a request. For a bucket, repeat it if the failure may be temporary."""
        began = time.monotonic()
        for attempt in range(0 if self.is_local else ATTEMPTS - 1):
            try:
                return request()
            except Exception as error:
                if not _is_temporary(error) or time.monotonic() - began > RETRY_LIMIT_SECONDS:
                    raise
                time.sleep(RETRY_PAUSE_SECONDS * 2**attempt)
        return request()

    @contextmanager
    def _translate_errors(self, what: str, name: str) -> Iterator[None]:
        """Turn the storage's errors into StorageError."""
        where = f"{self.url}/{name}".rstrip("/")
        try:
            yield
        except OSError as error:
            # If a folder is at the file's path, or a file at its folder's path, the file does not exist.
            is_missing = isinstance(error, FileNotFoundError | IsADirectoryError | NotADirectoryError)
            kind = MissingFileError if is_missing else StorageError
            raise kind(f"{where} {what}: {error.strerror or self._reason(str(error))}") from None
        except Exception as error:
            if self.is_local or not type(error).__module__.startswith("obstore"):
                raise
            kind = MissingFileError if type(error).__name__ == "NotFoundError" else StorageError
            raise kind(f"{where} {what}: {self._reason(str(error))}") from None

    def _reason(self, message: str) -> str:
        """Return the first line of a bucket client's error. Add the remedy if credentials are missing."""
        line = message.partition("\n")[0]
        if not METADATA_SERVER_PATHS.search(line):
            return line
        names = CREDENTIAL_VARIABLES[self.url.partition("://")[0]]
        return f"no credentials: set {names}, or give this pod's service account access to the bucket ({line})"


def write_all(file: IO[bytes], content: memoryview) -> None:
    """Write all of the content. One system call writes at most 2 GiB."""
    while content:
        content = content[file.write(content) :]


def _raise_not_listed(error: OSError) -> None:
    """Raise StorageError for a folder that os.walk would skip, because training would lack its files."""
    raise StorageError(f"{error.filename} cannot be listed: {error.strerror}")


def _last_part(path: str) -> str:
    return path.rstrip("/").rsplit("/", 1)[-1]


def _is_temporary(error: Exception) -> bool:
    """Return True if a retry may help. obstore has other types of errors for lasting problems such as permissions."""
    if isinstance(error, OSError):
        return not isinstance(error, PERMANENT_ERRORS)
    return type(error).__module__.startswith("obstore") and type(error).__name__ == "GenericError"


def checkpoints_folder(bucket: Folder, job: str) -> Folder:
    """Return the folder of a job's checkpoints, with one folder per saved step."""
    return bucket.child(CHECKPOINTS).child(job)


def profiles_folder(bucket: Folder, job: str) -> Folder:
    """Return the folder of a job's profiles, with one folder per process."""
    return bucket.child(PROFILES).child(job)
