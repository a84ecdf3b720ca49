"""Checkpoints: save, load, delete old ones, skip broken ones, and survive kills."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.trainer.saving import (
    load_newest,
    load_newest_or_none,
    save_steps,
    save_until_killed,
    small_state,
    state_at,
    tensor_file,
)
from trainer.checkpoints.checkpoint import WRITER_NICE, Checkpoints, HostCopies, SavedState
from trainer.checkpoints.state import RunState
from trainer.checkpoints.tensor_files import MANIFEST, decode_manifest, encode_manifest
from trainer.data.sampler import EpochSampler
from trainer.exit_codes import DataError, StorageError
from trainer.runtime import Runtime
from trainer.storage import Folder

KILLS = 100


def change(path: Path, edit: Callable[[bytes], bytes]) -> None:
    """Replace the content of a file by its edited content."""
    path.write_bytes(edit(path.read_bytes()))


def change_manifest(folder: Path, **changes: object) -> None:
    """Change values in the manifest of a complete checkpoint."""
    change(folder / MANIFEST, lambda file: encode_manifest({**decode_manifest(file), **changes}))


def change_facts(folder: Path, **changes: object) -> None:
    change_manifest(folder, facts={**decode_manifest((folder / MANIFEST).read_bytes())["facts"], **changes})


def replace_by_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def write_manifest_without_checksum(folder: Path) -> None:
    (folder / MANIFEST).write_bytes(json.dumps({"format": 2}).encode())


DEFECTS: dict[str, tuple[Callable[[Path], object], str]] = {
    "never finished": (lambda folder: (folder / MANIFEST).unlink(), "not finished"),
    "empty manifest": (lambda folder: (folder / MANIFEST).write_bytes(b""), "is empty"),
    "manifest cut short": (lambda folder: change(folder / MANIFEST, lambda file: file[:-9]), "checksum of checkpoint"),
    "manifest of something else": (write_manifest_without_checksum, "checksum of checkpoint"),
    "newer format": (lambda folder: change_manifest(folder, format=3), "format is 3"),
    "tensors missing": (lambda folder: tensor_file(folder).unlink(), "tensors cannot be read"),
    "a folder for tensors": (
        lambda folder: replace_by_folder(tensor_file(folder)),
        "tensors cannot be read: Is a directory",
    ),
    "tensors empty": (lambda folder: tensor_file(folder).write_bytes(b""), "too short"),
    "tensors cut short": (lambda folder: change(tensor_file(folder), lambda file: file[: len(file) // 2]), "too short"),
    "one bit": (
        lambda folder: change(tensor_file(folder), lambda file: file[:-100] + bytes([file[-100] ^ 1]) + file[-99:]),
        "checksum of",
    ),
    "a copy of another step": (lambda folder: change_facts(folder, step=2), "it is a copy of step 2"),
    "other model": (lambda folder: change_facts(folder, signature="resnet/sgd"), "belongs to resnet/sgd, not "),
}
"""Name of a defect -> function that damages the checkpoint in a folder, and a part of the reported reason."""


@pytest.fixture
def checkpoints(tmp_path: Path, runtime: Runtime) -> Checkpoints:
    """Save three checkpoints on a disk, and return the object that saved them."""
    found = Checkpoints(Folder(f"file://{tmp_path}/run"), runtime, keep=3)
    save_steps(found, 1, 2, 3)
    return found


def test_load_newest_returns_the_saved_state(checkpoints: Checkpoints) -> None:
    found, skipped = load_newest(checkpoints)
    assert skipped == []
    assert found.facts == state_at(3).facts
    assert found.tensors.keys() == state_at(3).tensors.keys()
    for name, tensor in state_at(3).tensors.items():
        assert found.tensors[name].dtype == tensor.dtype
        assert torch.equal(found.tensors[name], tensor)


def test_writer_thread_has_a_higher_niceness_than_training(tmp_path: Path, runtime: Runtime) -> None:
    found: list[int] = []

    class RecordingCheckpoints(Checkpoints):
        def check_tensor(self, name: str, tensor: torch.Tensor) -> None:
            del name, tensor
            found.append(os.getpriority(os.PRIO_PROCESS, 0))

    own = os.getpriority(os.PRIO_PROCESS, 0)
    save_steps(RecordingCheckpoints(Folder(f"file://{tmp_path}"), runtime, keep=1), 1)
    assert set(found) == {min(19, own + WRITER_NICE)}
    assert os.getpriority(os.PRIO_PROCESS, 0) == own


def test_load_in_pieces_needs_less_memory_than_the_files_and_sends_heartbeats(
    tmp_path: Path, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainer.checkpoints.tensor_files.MAX_READ_BYTES", 2**20)
    checkpoints = Checkpoints(Folder(f"file://{tmp_path}"), runtime, keep=1)
    tensors = {f"weights-{number}": torch.full((2**16,), float(number)) for number in range(64)}
    checkpoints.save(1, SavedState(tensors=tensors, facts=state_at(1).facts))
    checkpoints.wait()
    heartbeats: list[bool] = []
    monkeypatch.setattr(runtime, "heartbeat", lambda: heartbeats.append(True))
    # Measure the memory that Python allocates: the content of files, but not torch's tensors.
    tracemalloc.start()
    found, _ = load_newest(checkpoints)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found
    assert all(torch.equal(found.tensors[name], tensor) for name, tensor in tensors.items())
    assert peak < 2**24 / 2, f"{peak} bytes for files of {2**24}"
    assert len(heartbeats) == 16


def test_tensors_changed_after_wait_for_copies_are_saved_unchanged(tmp_path: Path, runtime: Runtime) -> None:
    checkpoints = Checkpoints(Folder(f"file://{tmp_path}"), runtime, keep=3)
    for step in (1, 2):
        weights = torch.full((2_000_000,), float(step))
        checkpoints.save(step, SavedState(tensors={"weights": weights}, facts=state_at(step).facts))
        checkpoints.wait_for_copies()
        weights.fill_(-1)
        checkpoints.wait()
        found, _ = load_newest(checkpoints)
        assert set(found.tensors["weights"].tolist()) == {step}


def test_captured_state_is_not_changed_by_a_forward_pass(runtime: Runtime) -> None:
    state = small_state()
    captured = state.capture(runtime).tensors
    before = {name: tensor.clone() for name, tensor in captured.items()}
    state.model(torch.randn(4, 3))
    assert not torch.equal(state.model.state_dict()["running_mean"], before["model.running_mean"])
    for name, tensor in captured.items():
        assert torch.equal(tensor, before[name]), name


def test_float16_loss_scale_is_restored(runtime: Runtime) -> None:
    def state() -> RunState:
        model = torch.nn.Linear(3, 2)
        return RunState(
            signature="linear/sgd",
            model=model,
            optimizer=torch.optim.SGD(model.parameters()),
            sampler=EpochSampler(1, rank=0, world=1, batch_size=1, seed=0),
            scaler=torch.amp.GradScaler("cpu", init_scale=1024.0),
        )

    before, after = state(), state()
    loss = before.scaler.scale(before.model(torch.full((1, 3), float("inf"))).sum())
    loss.backward()
    before.scaler.step(before.optimizer)
    before.scaler.update()
    assert before.scaler.get_scale() == 512
    found = before.capture(runtime)
    after.restore(SavedState(tensors=found.tensors, facts=json.loads(json.dumps(found.facts))), runtime, seed=0)
    assert after.scaler.get_scale() == 512


def test_retention_deletes_checkpoints_beyond_number_and_age(
    checkpoints: Checkpoints, tmp_path: Path, runtime: Runtime
) -> None:
    save_steps(checkpoints, 4)
    assert checkpoints.folder.names() == [f"step-{step:09d}" for step in (2, 3, 4)]
    os.utime(tmp_path / "run" / "step-000000002" / MANIFEST, (0, time.time() - 7200))
    by_age = Checkpoints(checkpoints.folder, runtime, keep=1, keep_hours=1)
    save_steps(by_age, 5)
    assert checkpoints.folder.names() == [f"step-{step:09d}" for step in (3, 4, 5)]


@pytest.mark.parametrize("kind", ["never finished", "manifest cut short", "tensors cut short"])
def test_retention_does_not_count_damaged_checkpoint(kind: str, tmp_path: Path, runtime: Runtime) -> None:
    checkpoints = Checkpoints(Folder(f"file://{tmp_path}"), runtime, keep=2)
    save_steps(checkpoints, 1, 2)
    damage, _ = DEFECTS[kind]
    damage(tmp_path / "step-000000002")
    save_steps(checkpoints, 3)
    assert checkpoints.folder.names() == ["step-000000001", "step-000000003"]


def test_retention_does_not_count_rejected_checkpoint(tmp_path: Path, runtime: Runtime) -> None:
    checkpoints = Checkpoints(Folder(f"file://{tmp_path}"), runtime, keep=2)
    save_steps(checkpoints, 1, 2)
    damage, _ = DEFECTS["one bit"]
    damage(tmp_path / "step-000000002")
    # The age must not matter: the manifest's time is in the future, as from a clock that is ahead.
    os.utime(tmp_path / "step-000000002" / MANIFEST, (time.time() + 9999,) * 2)
    load_newest(checkpoints)
    save_steps(checkpoints, 3)
    assert checkpoints.folder.names() == ["step-000000001", "step-000000003"]


def test_retention_with_lagging_listing_deletes_no_complete_checkpoint(
    tmp_path: Path, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoints = Checkpoints(Folder(f"file://{tmp_path}"), runtime, keep=3)
    save_steps(checkpoints, 1, 2)
    names = Folder.names
    # Simulate a listing that has the folders of the steps, but not the files in them.
    monkeypatch.setattr(Folder, "names", lambda folder: [name for name in names(folder) if name.startswith("step-")])
    save_steps(checkpoints, 3)
    found, skipped = load_newest(checkpoints)
    assert (found.facts["step"], skipped) == (3, [])
    assert checkpoints.folder.names() == [f"step-{step:09d}" for step in (1, 2, 3)]


def test_resume_without_checkpoints_starts_from_scratch(tmp_path: Path, runtime: Runtime) -> None:
    assert load_newest_or_none(Checkpoints(Folder(f"file://{tmp_path}/none"), runtime, keep=1)) == (None, [])


def test_resume_after_kill_in_first_save_starts_from_scratch(tmp_path: Path, runtime: Runtime) -> None:
    checkpoints = Checkpoints(Folder(f"file://{tmp_path}"), runtime, keep=1)
    save_steps(checkpoints, 1)
    (tmp_path / "step-000000001" / MANIFEST).unlink()
    assert load_newest_or_none(checkpoints) == (None, [("step-000000001", "it was not finished")])


@pytest.mark.parametrize("kind", DEFECTS)
def test_resume_skips_broken_checkpoint_and_reports_it(checkpoints: Checkpoints, tmp_path: Path, kind: str) -> None:
    damage, reason = DEFECTS[kind]
    damage(tmp_path / "run" / "step-000000003")
    found, skipped = load_newest(checkpoints)
    assert found.facts["step"] == 2
    assert [name for name, _ in skipped] == ["step-000000003"]
    assert reason in skipped[0][1]


def test_resume_with_only_broken_checkpoints_raises(checkpoints: Checkpoints, tmp_path: Path) -> None:
    for folder in (tmp_path / "run").iterdir():
        change(tensor_file(folder), lambda file: file[:-1])
    with pytest.raises(DataError, match="none of 3 checkpoints"):
        load_newest(checkpoints)


def test_save_after_failed_save_raises_its_error(tmp_path: Path, runtime: Runtime) -> None:
    (tmp_path / "file").write_text("in the way")
    checkpoints = Checkpoints(Folder(f"file://{tmp_path}/file/run"), runtime, keep=1)
    checkpoints.save(1, state_at(1))
    with pytest.raises(StorageError, match=r"tensors cannot be written|cannot be (deleted|listed)"):
        checkpoints.save(2, state_at(2))


@pytest.mark.parametrize("resumed", [False, True])
def test_save_of_same_step_keeps_old_checkpoint_until_new_manifest_is_written(
    resumed: bool, tmp_path: Path, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Folder(f"file://{tmp_path}")
    checkpoints = Checkpoints(folder, runtime, keep=1)
    save_steps(checkpoints, 3)
    if resumed:
        checkpoints = Checkpoints(folder, runtime, keep=1)
        load_newest(checkpoints)
    again = SavedState(tensors=state_at(4).tensors, facts={**state_at(3).facts, "epoch": 1})

    def fail(*_: object) -> None:
        raise StorageError("the bucket is gone")

    with monkeypatch.context() as patch:
        patch.setattr(Folder, "write", fail)
        checkpoints.save(3, again)
        with pytest.raises(StorageError, match="the bucket is gone"):
            checkpoints.wait()
    found, skipped = load_newest(Checkpoints(folder, runtime, keep=1))
    assert found.facts == state_at(3).facts
    assert skipped == []
    assert torch.equal(found.tensors["weights"], state_at(3).tensors["weights"])
    checkpoints.save(3, again)
    checkpoints.wait()
    found, _ = load_newest(Checkpoints(folder, runtime, keep=1))
    assert found.facts["epoch"] == 1
    assert torch.equal(found.tensors["weights"], again.tensors["weights"])
    assert len(folder.child("step-000000003").names()) == 2, "the files of the replaced checkpoint must be deleted"


def test_process_killed_during_save_leaves_complete_checkpoint(tmp_path: Path, runtime: Runtime) -> None:
    rng = random.Random(0)
    checkpoints = Checkpoints(Folder(f"file://{tmp_path}"), runtime, keep=2)
    # Fork from a process that has imported torch, because a hundred imports would take minutes.
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload(
        ["tests.trainer.saving", "torch.distributed.checkpoint", "trainer.checkpoints.tensor_files"]
    )
    unfinished = 0
    for kill in range(KILLS):
        receiver, sender = processes.Pipe(duplex=False)
        process = processes.Process(target=save_until_killed, args=(f"file://{tmp_path}", 1 + 1000 * kill, sender))
        process.start()
        last = receiver.recv()
        time.sleep(rng.uniform(0, 0.05))
        process.kill()
        process.join()
        found, skipped = load_newest(checkpoints)
        assert found.facts["step"] >= last
        values = {value for tensor in found.tensors.values() for value in set(tensor.tolist())}
        assert values == {found.facts["step"]}
        assert [reason for _, reason in skipped] == ["it was not finished"] * len(skipped)
        unfinished += bool(skipped)
        for end in (receiver, sender):
            end.close()
    assert unfinished, "no process was killed during a save, so the test proves nothing"


def test_copies_of_equal_shapes_keep_values_and_reuse_memory() -> None:
    copies = HostCopies(torch.device("cpu"))
    images = torch.rand(2, 3, 4, 4).contiguous(memory_format=torch.channels_last)
    tensors = {"images": images, "half": torch.rand(3).half().requires_grad_(), "none": torch.empty(0, 3)}
    expected = {name: tensor.detach().clone() for name, tensor in tensors.items()}
    first = copies.start(tensors).result()
    images.zero_()
    assert all(torch.equal(first[name], found) for name, found in expected.items())
    assert first["images"].stride() == images.stride()
    assert not first["half"].requires_grad
    second = copies.start(tensors).result()
    assert torch.equal(second["images"], images)
    assert second["images"].data_ptr() == first["images"].data_ptr()


def test_copies_of_other_shapes_or_types_get_new_memory() -> None:
    copies = HostCopies(torch.device("cpu"))
    first = copies.start({"a": torch.ones(4), "b": torch.ones(4)}).result()
    second = copies.start({"a": torch.ones(2), "b": torch.ones(4, dtype=torch.int64)}).result()
    assert [(tensor.shape, tensor.dtype) for tensor in second.values()] == [((2,), torch.float32), ((4,), torch.int64)]
    assert torch.equal(first["a"], torch.ones(4))
