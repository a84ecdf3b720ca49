"""Runs that save and resume small checkpoints, on one rank in this process or on two ranks, and crash on request."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import fsspec
import torch

from bench.measure import free_port
from trainer.checkpoints.checkpoint import Checkpoints, SavedState
from trainer.checkpoints.state import RunLease
from trainer.checkpoints.tensor_files import MANIFEST
from trainer.config import parse
from trainer.exit_codes import TrainerError
from trainer.runtime import Runtime, start_runtime
from trainer.storage import Folder

CREATE = "create"
"""Name of the call that creates a run in a rank."""
FLAGS = ["digits", "--device=cpu", "--process-group-timeout=60"]
CRASH_WHILE_WRITING = -1
"""Value of `crash` for a crash before the first tensor.

A value N >= 0 crashes at check N of the lease, counted from 0.
"""


class CrashError(TrainerError):
    """A crash inside a save."""


class ResumePoint(NamedTuple):
    """The checkpoint that a run resumed from."""

    step: int
    value: float
    skipped: list[str]


class HookedCheckpoints(Checkpoints):
    """Checkpoints that call the hooks of a run."""

    def __init__(self, run: RankRun, url: str, keep: int, runtime: Runtime) -> None:
        super().__init__(Folder(url).child("checkpoints"), runtime, keep=keep)
        self._run = run

    def verify_lease(self) -> None:
        self._run.verify_lease()

    def check_tensor(self, name: str, tensor: torch.Tensor) -> None:
        del name, tensor
        self._run.check_tensor()


class RankRun:
    """This rank's part of a run."""

    def __init__(self, url: str, keep: int, runtime: Runtime) -> None:
        self._lease = RunLease(Folder(url), "node")
        if runtime.rank == 0:
            self._lease.acquire()
        runtime.barrier()
        self._rank = runtime.rank
        self._crash: int | None = None
        self._gate, self._is_writing = threading.Event(), threading.Event()
        self._checkpoints = HookedCheckpoints(self, url, keep, runtime)

    def verify_lease(self) -> None:
        if self._crash == 0:
            raise CrashError("crash at a check of the lease")
        if self._crash is not None and self._crash > 0:
            self._crash -= 1
        self._lease.verify()

    def check_tensor(self) -> None:
        self._is_writing.set()
        self._gate.wait()
        if self._crash == CRASH_WHILE_WRITING:
            raise CrashError("crash while writing")

    def resume(self) -> ResumePoint | None:
        """Load the newest usable checkpoint."""
        skipped: list[str] = []
        found = self._checkpoints.load_newest(
            check_compatible=lambda _: None, skipped=lambda name, _: skipped.append(name)
        )
        if found is None:
            return None
        (value,) = {value for tensor in found.tensors.values() for value in set(tensor.tolist())}
        return ResumePoint(found.facts["step"], value, skipped)

    def save(self, step: int, value: float, *, crash: int | None = None, held: bool = False) -> None:
        """Start a save.

        With `held`, return when the save reaches its first tensor. The save then waits for `release`.
        """
        self._crash = crash
        self._is_writing.clear()
        if held:
            self._gate.clear()
        else:
            self._gate.set()
        names = ("weights", "moments", "bias", f"random.{self._rank}")
        tensors = {name: torch.full((40,), value) for name in names}
        self._checkpoints.save(step, SavedState(tensors=tensors, facts={"step": step}))
        if held:
            self._is_writing.wait()

    def release(self) -> None:
        self._gate.set()

    def wait(self) -> None:
        self._checkpoints.wait()

    def drain(self) -> None:
        """Wait for the background thread, as the interpreter does at its exit."""
        self._checkpoints._thread.submit(lambda: None).result()


class TwoRankRun:
    """A run on two ranks, in processes that also serve other runs."""

    def __init__(self, pipes: list[Connection], url: str, keep: int) -> None:
        self._pipes = pipes
        self._number: int | None = None
        self._number = self._call(CREATE, url, keep)

    def _call(self, method: str, *args: Any, **kwargs: Any) -> Any:
        for pipe in self._pipes:
            pipe.send((self._number, method, args, kwargs))
        answers = [pipe.recv() for pipe in self._pipes]
        assert type(answers[0]) is type(answers[1]), answers
        if isinstance(answers[0], Exception):
            raise answers[0]
        return answers[0]

    def resume(self) -> ResumePoint | None:
        found: ResumePoint | None = self._call("resume")
        return found

    def save(self, step: int, value: float, *, crash: int | None = None, held: bool = False) -> None:
        self._call("save", step, value, crash=crash, held=held)

    def release(self) -> None:
        self._call("release")

    def wait(self) -> None:
        self._call("wait")

    def drain(self) -> None:
        self._call("drain")


Run = RankRun | TwoRankRun
"""A run of the job. It acquires the lease when it is created."""


def serve_rank(rank: int, port: int, pipe: Connection) -> None:
    """Act as one of two ranks: create runs and call their methods until the pipe is closed."""
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    runtime = start_runtime(parse(FLAGS))
    runs: list[RankRun] = []
    while True:
        try:
            number, method, args, kwargs = pipe.recv()
        except EOFError:
            return
        try:
            if method == CREATE:
                url, keep = args
                runs.append(RankRun(url, keep, runtime))
                pipe.send(len(runs) - 1)
            else:
                pipe.send(getattr(runs[number], method)(*args, **kwargs))
        except TrainerError as error:
            pipe.send(error)


@contextmanager
def rank_pipes() -> Iterator[list[Connection]]:
    """Start two ranks and yield a pipe to each."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.trainer.history", "torch.distributed.checkpoint"])
    port = free_port()
    pipes, processes = [], []
    for rank in range(2):
        own_end, rank_end = context.Pipe()
        processes.append(context.Process(target=serve_rank, args=(rank, port, rank_end)))
        processes[-1].start()
        rank_end.close()
        pipes.append(own_end)
    try:
        yield pipes
    finally:
        for pipe in pipes:
            pipe.close()
        for process in processes:
            process.join(10)
            process.kill()


class Store:
    """The stored checkpoints. This class reads and damages them without the trainer's code."""

    def __init__(self, url: str) -> None:
        # This registers obstore as fsspec's client for buckets.
        Folder(url)
        self._is_google = url.startswith("gs://")
        self.filesystem, path = fsspec.url_to_fs(url)
        self.path = f"{path}/checkpoints"

    def folder(self, step: int) -> str:
        return f"{self.path}/step-{step:09d}"

    def steps(self) -> list[int]:
        """Return the steps that have any file."""
        self.filesystem.invalidate_cache()
        if not self.filesystem.exists(self.path):
            return []
        return sorted(int(path.rstrip("/").rsplit("-", 1)[-1]) for path in self.filesystem.ls(self.path, detail=False))

    def manifest(self, step: int) -> dict[str, Any] | None:
        """Return the manifest of a step, or None if it is missing, damaged or copied from another step."""
        path = f"{self.folder(step)}/{MANIFEST}"
        if not self.filesystem.isfile(path):
            return None
        digest, _, content = self.filesystem.cat_file(path).partition(b"\n")
        if hashlib.sha256(content).hexdigest().encode() != digest:
            return None
        found: dict[str, Any] = json.loads(content)
        return found if found["facts"]["step"] == step else None

    def value(self, step: int) -> float | None:
        """Return the value of every element of all tensors, or None if the checkpoint is not complete."""
        manifest = self.manifest(step)
        if manifest is None:
            return None
        values: set[float] = set()
        for tensor in manifest["tensors"].values():
            for chunk in tensor["chunks"]:
                path = f"{self.folder(step)}/{chunk['file']}"
                content = self.filesystem.cat_file(path) if self.filesystem.isfile(path) else b""
                part = content[chunk["start"] : chunk["start"] + chunk["bytes"]]
                if hashlib.sha256(part).hexdigest() != chunk["sha256"]:
                    return None
                values |= set(torch.frombuffer(bytearray(part), dtype=torch.float32).tolist())
        (value,) = values
        return value

    def complete_checkpoints(self) -> dict[int, float]:
        """Return the value of each complete checkpoint by step."""
        values = {step: self.value(step) for step in self.steps()}
        return {step: value for step, value in values.items() if value is not None}

    def file_names(self, step: int) -> set[str]:
        self.filesystem.invalidate_cache()
        return {path.rsplit("/", 1)[-1] for path in self.filesystem.ls(self.folder(step), detail=False)}

    def contents(self) -> dict[str, bytes]:
        self.filesystem.invalidate_cache()
        return {path: self.filesystem.cat_file(path) for path in self.filesystem.find(self.path)}

    def tensor_file(self, step: int) -> str:
        """Return the path of the file with the weights of a complete checkpoint."""
        manifest = self.manifest(step)
        assert manifest
        return f"{self.folder(step)}/{manifest['tensors']['weights']['chunks'][0]['file']}"

    def write(self, path: str, content: bytes) -> None:
        self.filesystem.makedirs(path.rpartition("/")[0], exist_ok=True)
        self.filesystem.pipe_file(path, content)

    def remove(self, path: str) -> None:
        """Delete a file or a folder."""
        if not self._is_google:
            self.filesystem.rm(path, recursive=True)
            return
        # In a bucket, `rm` would also delete the folder's own name, which Google answers with 404.
        for file in self.filesystem.find(path) or [path]:
            self.filesystem.rm_file(file)
