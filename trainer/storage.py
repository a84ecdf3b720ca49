"""A run's folder on a disk or in a bucket, by fsspec URL; a file in it is complete or not there."""

from __future__ import annotations

import os
from typing import IO, cast

import fsspec
from fsspec.implementations.local import LocalFileSystem

from trainer.exit_codes import StorageError

UNFINISHED = ".unfinished"
"""Ending of a file that is being written."""


class Folder:
    """One folder; every failure of the storage is a StorageError that names the file."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        try:
            self._filesystem, self._path = fsspec.url_to_fs(self.url)
        except (ValueError, ImportError) as error:
            raise StorageError(f"bucket {url!r} cannot be used ({error}); allowed is file:///FOLDER") from None

    def child(self, name: str) -> Folder:
        """A folder in this folder."""
        return Folder(f"{self.url}/{name}")

    def names(self) -> list[str]:
        """Names of the files in the folder; none where the folder is not there."""
        try:
            self._filesystem.invalidate_cache()
            found = self._filesystem.ls(self._path, detail=False)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise self._failure("cannot be listed", "", error) from None
        return sorted(str(path).rstrip("/").rsplit("/", 1)[-1] for path in found)

    def read(self, name: str) -> bytes:
        """Content of a file."""
        try:
            return cast("bytes", self._filesystem.cat_file(f"{self._path}/{name}"))
        except OSError as error:
            raise self._failure("cannot be read", name, error) from None

    def write(self, name: str, content: bytes) -> None:
        """Write a whole file: after a crash at any moment it is there complete, or as it was before."""
        target = f"{self._path}/{name}"
        try:
            if not isinstance(self._filesystem, LocalFileSystem):
                # An object store shows an object only once it is complete.
                self._filesystem.pipe_file(target, content)
                return
            self._filesystem.makedirs(self._path, exist_ok=True)
            draft = target + UNFINISHED
            with self._filesystem.open(draft, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            self._filesystem.mv(draft, target)
            _sync_folder(self._path)
        except OSError as error:
            raise self._failure("cannot be written", name, error) from None

    def append(self, name: str) -> IO[str]:
        """Open a text file to write at its end."""
        try:
            self._filesystem.makedirs(self._path, exist_ok=True)
            return cast("IO[str]", self._filesystem.open(f"{self._path}/{name}", "a", encoding="utf-8"))
        except OSError as error:
            raise self._failure("cannot be written", name, error) from None

    def delete(self, name: str) -> None:
        """Delete a file, if it is there."""
        try:
            self._filesystem.rm_file(f"{self._path}/{name}")
        except FileNotFoundError:
            return
        except OSError as error:
            raise self._failure("cannot be deleted", name, error) from None

    def _failure(self, what: str, name: str, error: OSError) -> StorageError:
        where = f"{self.url}/{name}".rstrip("/")
        return StorageError(f"{where} {what}: {error.strerror or error}")


def _sync_folder(path: str) -> None:
    """Make a rename in the folder survive a crash of the machine."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
