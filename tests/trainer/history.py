"""Runs that save and resume small checkpoints, in this process or as two ranks, and crash on request."""

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

FLAGS = ["digits", "--device=cpu", "--process-group-timeout=60"]
CRASH_WHILE_WRITING = -1
"""Value of `crash` for a crash while the tensors are written. A number from 0 on is a check of the lease."""


class CrashError(TrainerError):
    """A crash inside a save."""


class Resumed(NamedTuple):
    """The checkpoint that a run resumed from."""

    step: int
    value: float
    skipped: list[str]


class HookedCheckpoints(Checkpoints):
    """Checkpoints that call the hooks of a run."""

    def __init__(self, run: InProcess, url: str, keep: int, runtime: Runtime) -> None:
        super().__init__(Folder(url).child("checkpoints"), runtime, keep=keep)
        self._run = run

    def verify_lease(self) -> None:
        self._run.verify_lease()

    def check_tensor(self, name: str, tensor: torch.Tensor) -> None:
        del name, tensor
        self._run.check_tensor()


class InProcess:
    """A run on this rank."""

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
        if self._crash is not None:
            self._crash -= 1
        self._lease.verify()

    def check_tensor(self) -> None:
        self._is_writing.set()
        self._gate.wait()
        if self._crash == CRASH_WHILE_WRITING:
            raise CrashError("crash while writing")

    def resume(self) -> Resumed | None:
        """Load the newest usable checkpoint."""
        skipped: list[str] = []
        found = self._checkpoints.load_newest(
            check_compatible=lambda _: None, skipped=lambda name, _: skipped.append(name)
        )
        if found is None:
            return None
        (value,) = {value for tensor in found.tensors.values() for value in set(tensor.tolist())}
        return Resumed(found.facts["step"], value, skipped)

    def save(self, step: int, value: float, *, crash: int | None = None, held: bool = False) -> None:
        """Start a save. With `held`, return in the middle of writing and continue at `release`."""
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


class TwoRanks:
    """A run on two ranks, in processes that later runs use too."""

    def __init__(self, pipes: list[Connection], url: str, keep: int) -> None:
        self._pipes = pipes
        self._number: int = self._call("", url, keep)

    def _call(self, method: str, *words: Any, **more: Any) -> Any:
        for pipe in self._pipes:
            pipe.send((getattr(self, "_number", None), method, words, more))
        answers = [pipe.recv() for pipe in self._pipes]
        assert type(answers[0]) is type(answers[1]), answers
        if isinstance(answers[0], Exception):
            raise answers[0]
        return answers[0]

    def resume(self) -> Resumed | None:
        found: Resumed | None = self._call("resume")
        return found

    def save(self, step: int, value: float, *, crash: int | None = None, held: bool = False) -> None:
        self._call("save", step, value, crash=crash, held=held)

    def release(self) -> None:
        self._call("release")

    def wait(self) -> None:
        self._call("wait")

    def drain(self) -> None:
        self._call("drain")


Run = InProcess | TwoRanks
"""A run of the job. It acquires the lease when it is created."""


def serve_rank(rank: int, port: int, pipe: Connection) -> None:
    """Act as one of two ranks: create runs and call their methods until the pipe is closed."""
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    runtime = start_runtime(parse(FLAGS))
    runs: list[InProcess] = []
    while True:
        try:
            number, method, words, more = pipe.recv()
        except EOFError:
            return
        try:
            if method:
                pipe.send(getattr(runs[number], method)(*words, **more))
            else:
                url, keep = words
                runs.append(InProcess(url, keep, runtime))
                pipe.send(len(runs) - 1)
        except TrainerError as error:
            pipe.send(error)


@contextmanager
def two_ranks() -> Iterator[list[Connection]]:
    """Start two ranks and yield a pipe to each."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.trainer.history", "torch.distributed.checkpoint"])
    port = free_port()
    pipes, processes = [], []
    for rank in range(2):
        here, there = context.Pipe()
        processes.append(context.Process(target=serve_rank, args=(rank, port, there)))
        processes[-1].start()
        there.close()
        pipes.append(here)
    try:
        yield pipes
    finally:
        for pipe in pipes:
            pipe.close()
        for process in processes:
            process.join(10)
            process.kill()


class Store:
    """The stored checkpoints, read and damaged without the trainer's code."""

    def __init__(self, url: str) -> None:
        # Make fsspec use obstore for buckets.
        Folder(url)
        self.files, path = fsspec.url_to_fs(url)
        self.path = f"{path}/checkpoints"

    def place(self, step: int) -> str:
        return f"{self.path}/step-{step:09d}"

    def steps(self) -> list[int]:
        """Return all steps of which any file exists."""
        self.files.invalidate_cache()
        if not self.files.exists(self.path):
            return []
        return sorted(int(path.rstrip("/").rsplit("-", 1)[-1]) for path in self.files.ls(self.path, detail=False))

    def manifest(self, step: int) -> dict[str, Any] | None:
        """Return the manifest, or None if it is missing, damaged or a copy of another step's."""
        path = f"{self.place(step)}/{MANIFEST}"
        if not self.files.isfile(path):
            return None
        digest, _, content = self.files.cat_file(path).partition(b"\n")
        if hashlib.sha256(content).hexdigest().encode() != digest:
            return None
        found: dict[str, Any] = json.loads(content)
        return found if found["facts"]["step"] == step else None

    def value(self, step: int) -> float | None:
        """Return the common value of all tensors, or None if the checkpoint is not complete."""
        manifest = self.manifest(step)
        if manifest is None:
            return None
        values: set[float] = set()
        for tensor in manifest["tensors"].values():
            for chunk in tensor["chunks"]:
                path = f"{self.place(step)}/{chunk['file']}"
                content = self.files.cat_file(path) if self.files.isfile(path) else b""
                part = content[chunk["start"] : chunk["start"] + chunk["bytes"]]
                if hashlib.sha256(part).hexdigest() != chunk["sha256"]:
                    return None
                values |= set(torch.frombuffer(bytearray(part), dtype=torch.float32).tolist())
        (value,) = values
        return value

    def complete(self) -> dict[int, float]:
        """Return the value of each complete checkpoint by step."""
        values = {step: self.value(step) for step in self.steps()}
        return {step: value for step, value in values.items() if value is not None}

    def names(self, step: int) -> set[str]:
        self.files.invalidate_cache()
        return {path.rsplit("/", 1)[-1] for path in self.files.ls(self.place(step), detail=False)}

    def contents(self) -> dict[str, bytes]:
        self.files.invalidate_cache()
        return {path: self.files.cat_file(path) for path in self.files.find(self.path)}

    def tensor_file(self, step: int) -> str:
        """Return the path of the file with the weights of a complete checkpoint."""
        manifest = self.manifest(step)
        assert manifest
        return f"{self.place(step)}/{manifest['tensors']['weights']['chunks'][0]['file']}"

    def edit(self, path: str, content: bytes) -> None:
        self.files.makedirs(path.rpartition("/")[0], exist_ok=True)
        self.files.pipe_file(path, content)

    def remove(self, path: str) -> None:
        self.files.rm(path, recursive=True)
