"""Checkpoints: a broken one is named and the one before is used; a process killed while it saves leaves a whole one."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from trainer.checkpoint import Checkpoints, load_state, pack, unpack
from trainer.exit_codes import DataError, StorageError
from trainer.storage import Folder

PROJECT = Path(__file__).resolve().parents[2]
KILLS = 20


def other_header(file: bytes, **changes: object) -> bytes:
    """The file with other values in its header."""
    line, _, content = file.partition(b"\n")
    return json.dumps({**json.loads(line), **changes}).encode() + b"\n" + content


def not_a_state(_file: bytes) -> bytes:
    """A file that is whole but holds no checkpoint."""
    return pack(3, b"something else")


BREAKS: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "empty": (lambda _file: b"", "empty"),
    "truncated": (lambda file: file[: len(file) // 2], "bytes"),
    "one bit": (lambda file: file[:-100] + bytes([file[-100] ^ 1]) + file[-99:], "checksum"),
    "longer": (lambda file: file + b"x", "bytes"),
    "no header": (lambda file: file[20:], "header"),
    "newer format": (lambda file: other_header(file, format=2), "format is 2"),
    "other content": (not_a_state, "cannot be read"),
    "other model": (lambda _file: pack(3, saved_bytes("resnet/sgd")), "of resnet/sgd, not cnn/adamw"),
}


def state(step: int, signature: str = "cnn/adamw") -> dict[str, object]:
    return {"signature": signature, "step": step, "weights": torch.full((1000,), float(step))}


def saved_bytes(signature: str) -> bytes:
    import io

    buffer = io.BytesIO()
    torch.save(state(3, signature), buffer)
    return buffer.getvalue()


def newest(checkpoints: Checkpoints) -> tuple[object, list[tuple[str, str]]]:
    """Step of the newest checkpoint that is good, and which were skipped for what."""
    skipped: list[tuple[str, str]] = []
    found = checkpoints.newest(signature="cnn/adamw", skipped=lambda name, reason: skipped.append((name, reason)))
    return load_state(found)["step"] if found is not None else None, skipped


@pytest.fixture
def checkpoints(tmp_path: Path) -> Checkpoints:
    """Three checkpoints on a disk."""
    found = Checkpoints(Folder(f"file://{tmp_path}/run"), keep=3)
    for step in (1, 2, 3):
        found.save(step, state(step))
    return found


def test_the_newest_is_found(checkpoints: Checkpoints) -> None:
    assert newest(checkpoints) == (3, [])


def test_the_oldest_go(checkpoints: Checkpoints) -> None:
    checkpoints.save(4, state(4))
    assert checkpoints.folder.names() == [f"step-{step:09d}.checkpoint" for step in (2, 3, 4)]


def test_a_run_that_never_saved_starts_from_nothing(tmp_path: Path) -> None:
    assert newest(Checkpoints(Folder(f"file://{tmp_path}/none"), keep=1)) == (None, [])


@pytest.mark.parametrize("kind", BREAKS)
def test_a_broken_one_is_named_and_the_one_before_is_used(checkpoints: Checkpoints, tmp_path: Path, kind: str) -> None:
    damage, reason = BREAKS[kind]
    path = tmp_path / "run" / "step-000000003.checkpoint"
    path.write_bytes(damage(path.read_bytes()))
    step, skipped = newest(checkpoints)
    assert step == 2
    assert [name for name, _ in skipped] == [path.name]
    assert reason in skipped[0][1]


def test_when_all_are_broken_training_does_not_start_again_from_nothing(
    checkpoints: Checkpoints, tmp_path: Path
) -> None:
    for path in (tmp_path / "run").iterdir():
        path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DataError, match="none of 3 checkpoints"):
        newest(checkpoints)


def test_storage_that_fails_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StorageError, match="cannot be written"):
        Checkpoints(Folder(f"file://{tmp_path}/file/run"), keep=1).save(1, state(1))


def test_a_process_killed_while_it_saves_leaves_a_whole_file(tmp_path: Path) -> None:
    program = (
        "import hashlib, itertools, json, sys\n"
        "from trainer.storage import Folder\n"
        "folder = Folder('file://' + sys.argv[1])\n"
        "for number in itertools.count(1):\n"
        "    content = bytes([number % 256]) * 3_000_000\n"
        "    head = {'format': 1, 'bytes': len(content), 'sha256': hashlib.sha256(content).hexdigest()}\n"
        "    folder.write('step-000000001.checkpoint', json.dumps(head).encode() + b'\\n' + content)\n"
        "    print(number, flush=True)\n"
    )
    unfinished = 0
    chance = random.Random(0)
    for _ in range(KILLS):
        words = [sys.executable, "-c", program, str(tmp_path)]
        with subprocess.Popen(words, cwd=PROJECT, stdout=subprocess.PIPE) as saving:
            assert saving.stdout
            assert saving.stdout.readline() == b"1\n"
            time.sleep(chance.uniform(0, 0.03))
            saving.kill()
        unpack((tmp_path / "step-000000001.checkpoint").read_bytes())
        unfinished += (tmp_path / "step-000000001.checkpoint.unfinished").exists()
    assert unfinished, "no process was killed while it wrote: the test proves nothing"
