"""Random sequences of saves, damage, resumes and takeovers keep the newest complete checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from tests.conftest import SOAK
from tests.trainer.history import CRASH_WHILE_WRITING, CrashError, RankRun, Run, Store, TwoRankRun, rank_pipes
from trainer.checkpoints.tensor_files import MANIFEST
from trainer.exit_codes import ConfigurationError, DataError, StorageError
from trainer.runtime import Runtime


def flip(store: Store, step: int) -> None:
    """Change one byte of the weights. Only a resume reads the weights, so only a resume detects this."""
    path = store.tensor_file(step)
    content = store.filesystem.cat_file(path)
    store.write(path, content[:-1] + bytes([content[-1] ^ 1]))


def cut(store: Store, path: str, *, size: int = -1) -> None:
    """Keep only the first `size` bytes of a file, by default all but the last byte."""
    store.write(path, store.filesystem.cat_file(path)[:size])


def copy_to_next(store: Store, step: int) -> None:
    """Copy a checkpoint to the folder of the next step, and delete the manifest of the original."""
    if store.filesystem.exists(store.folder(step + 1)):
        store.remove(store.folder(step + 1))
    for name in store.file_names(step):
        store.write(f"{store.folder(step + 1)}/{name}", store.filesystem.cat_file(f"{store.folder(step)}/{name}"))
    store.remove(f"{store.folder(step)}/{MANIFEST}")


DAMAGE: dict[str, Callable[[Store, int], None]] = {
    "flipped byte": flip,
    "tensors cut short": lambda store, step: cut(store, store.tensor_file(step)),
    "tensors empty": lambda store, step: cut(store, store.tensor_file(step), size=0),
    "tensors missing": lambda store, step: store.remove(store.tensor_file(step)),
    "manifest cut short": lambda store, step: cut(store, f"{store.folder(step)}/{MANIFEST}"),
    "manifest missing": lambda store, step: store.remove(f"{store.folder(step)}/{MANIFEST}"),
    "copy of another step": copy_to_next,
}


class Saving(NamedTuple):
    """A save, and the checkpoints when it began."""

    step: int
    value: float
    complete: dict[int, float]
    """Value of each complete checkpoint by step."""
    flipped: set[int]
    """Steps with a changed byte."""


class Histories(RuleBasedStateMachine):
    """Runs of one job that save, crash, resume and take over, while checkpoints are damaged."""

    def __init__(self, url: str, start: Callable[[int, str, int], Run]) -> None:
        super().__init__()
        self._start, self._url, self._store = start, url, Store(url)
        self._run: Run | None = None
        self._former: list[Run] = []
        self._world = self._keep = 1
        self._step = self._value = 0
        self._flipped: set[int] = set()
        """Steps with a changed byte that no resume has read yet. A save still counts them as complete."""

    @initialize(world=st.sampled_from([1, 2]), keep=st.integers(1, 4))
    def begin(self, world: int, keep: int) -> None:
        """Start with three checkpoints."""
        self.resume(world, keep)
        for _ in range(3):
            self.save(1)

    @rule(
        kinds=st.lists(st.sampled_from(sorted(DAMAGE)), min_size=1, max_size=2),
        world=st.sampled_from([1, 2]),
        keep=st.integers(2, 4),
        saves=st.integers(0, 3),
        resumes=st.booleans(),
    )
    def damage_newest(self, kinds: list[str], world: int, keep: int, saves: int, *, resumes: bool) -> None:
        """Damage the newest checkpoint once or twice, resume if requested or necessary, and save."""
        for kind in kinds:
            if complete := self._store.complete_checkpoints():
                self.damage_step(max(complete), kind)
        if resumes or not self._run:
            self.resume(world, keep)
        for _ in range(saves):
            self.save(1)

    @rule(world=st.sampled_from([1, 2]), keep=st.integers(1, 4))
    def resume(self, world: int, keep: int) -> None:
        """Start another run of the job. A previous run that has not ended loses the lease."""
        if self._run:
            self._former.append(self._run)
        complete, contents = self._store.complete_checkpoints(), self._store.contents()
        self._world, self._keep = world, keep
        self._run = self._start(world, self._url, keep)
        try:
            found = self._run.resume()
        except DataError:
            assert not complete
            # Delete the checkpoints, as the error advises.
            self._store.remove(self._store.path)
            found = None
        else:
            assert self._store.contents() == contents, "a resume must not change any file"
        if found:
            assert (found.step, found.value) == (max(complete), complete[found.step])
            later = [step for step in self._store.steps() if step > found.step]
            assert sorted(found.skipped) == [f"step-{step:09d}" for step in later]
        else:
            assert not complete
        self._step = found.step if found else 0
        self._flipped = {step for step in self._flipped if step < self._step}

    @precondition(lambda self: self._run)
    @rule(steps=st.integers(0, 2), crash=st.none() | st.integers(CRASH_WHILE_WRITING, 4))
    def save_or_crash(self, steps: int, crash: int | None) -> None:
        """Save. Crash during the save if requested."""
        self.save(steps, crash)

    @precondition(lambda self: self._run)
    @rule(steps=st.integers(0, 2))
    def end_with_save_pending(self, steps: int) -> None:
        """End a run that does not wait for its last save. The save still completes in the background."""
        run = self._run
        assert run
        self._check(self._begin_save(run, steps), run.drain)
        self._run = None

    def teardown(self) -> None:
        """Continue every held save, even after a failure."""
        for run in (*self._former, *([self._run] if self._run else [])):
            run.release()

    def save(self, steps: int, crash: int | None = None) -> None:
        """Save after this number of further steps, and check the remaining checkpoints."""
        run = self._run
        assert run

        def wait() -> bool:
            try:
                run.wait()
            except CrashError:
                self._run = None
                return False
            return True

        self._check(self._begin_save(run, steps, crash=crash), wait)

    def _begin_save(self, run: Run, steps: int, **kwargs: Any) -> Saving:
        self._step, self._value = max(1, self._step + steps), self._value + 1
        saving = Saving(self._step, float(self._value), self._store.complete_checkpoints(), set(self._flipped))
        run.save(saving.step, saving.value, **kwargs)
        return saving

    def _check(self, saving: Saving, end: Callable[[], bool | None]) -> None:
        """Wait for a save, and check that it deletes only broken or old checkpoints."""
        is_done = end() is not False
        step, after = saving.step, self._store.complete_checkpoints()
        is_complete = after.get(step) == saving.value
        assert is_complete or not is_done
        others = {each: value for each, value in saving.complete.items() if each != step}
        if is_complete:
            self._flipped.discard(step)
            usable = sorted(each for each in {*others, *saving.flipped} if each < step)
            newest = set(usable[max(0, len(usable) + 1 - self._keep) :])
            lost = {each for each in others if each < step and each not in newest}
        else:
            lost = set()
            if step in saving.complete:
                assert after[step] == saving.complete[step], "a step must stay complete until it is replaced"
        for each in others.keys() - lost:
            assert after.get(each) == others[each], f"step {each} is lost"
        if is_done:
            assert {each for each in self._store.steps() if each < step} == newest
            manifest = self._store.manifest(step)
            assert manifest
            files = {chunk["file"] for tensor in manifest["tensors"].values() for chunk in tensor["chunks"]}
            assert self._store.file_names(step) == {MANIFEST, *files}
        self._flipped &= set(self._store.steps())

    @precondition(lambda self: self._run)
    @rule(keep=st.integers(1, 4), steps=st.integers(0, 2), same=st.booleans())
    def take_over_during_save(self, keep: int, steps: int, *, same: bool) -> None:
        """Start another run during a save. The first run must then change no complete checkpoint."""
        former = self._run
        assert former
        saving = self._begin_save(former, steps, held=True)
        # Use another number of ranks. On the same ranks, both runs would share a process group.
        self.resume(1 if self._world == 2 else 2, keep)
        if same:
            self.save(max(0, saving.step - self._step))
        complete = self._store.complete_checkpoints()
        former.release()
        with pytest.raises((ConfigurationError, StorageError)):
            former.wait()
        assert self._store.complete_checkpoints() == complete

    @precondition(lambda self: self._former)
    @rule(data=st.data(), steps=st.integers(0, 2))
    def save_without_lease(self, data: st.DataObject, steps: int) -> None:
        """Save in a run that has lost the lease. The save must fail and change no file."""
        former = data.draw(st.sampled_from(self._former))
        contents = self._store.contents()
        former.save(max(1, self._step + steps), -1.0)
        with pytest.raises(ConfigurationError, match="acquired by a run that started later"):
            former.wait()
        assert self._store.contents() == contents

    @precondition(lambda self: self._store.complete_checkpoints())
    @rule(data=st.data(), kind=st.sampled_from(sorted(DAMAGE)))
    def damage(self, data: st.DataObject, kind: str) -> None:
        """Damage a complete checkpoint. Hypothesis shrinks a failing example towards the newest checkpoint."""
        self.damage_step(data.draw(st.sampled_from(sorted(self._store.complete_checkpoints(), reverse=True))), kind)

    def damage_step(self, step: int, kind: str) -> None:
        DAMAGE[kind](self._store, step)
        assert step not in self._store.complete_checkpoints()
        if kind == "flipped byte":
            self._flipped.add(step)
        if kind == "copy of another step":
            self._flipped.discard(step + 1)


@pytest.fixture(scope="module")
def start(runtime: Runtime) -> Iterator[Callable[[int, str, int], Run]]:
    """Return a function that starts a run on one rank in this process, or on two ranks in other processes."""
    with rank_pipes() as pipes:

        def start(world: int, url: str, keep: int) -> Run:
            return TwoRankRun(pipes, url, keep) if world == 2 else RankRun(url, keep, runtime)

        yield start


def check_histories(start: Callable[[int, str, int], Run], url: str, *, examples: int) -> None:
    """Run random histories, each in its own folder below `url`."""
    numbers = count()
    run_state_machine_as_test(
        lambda: Histories(f"{url}/{next(numbers)}", start),  # type: ignore[arg-type]  # takes any factory
        settings=settings(
            max_examples=examples * (20 if SOAK else 1),
            stateful_step_count=12,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_histories_on_a_disk_keep_the_newest_complete_checkpoints(
    tmp_path: Path, start: Callable[[int, str, int], Run]
) -> None:
    check_histories(start, f"file://{tmp_path}", examples=60)


def test_histories_in_an_object_store_keep_the_newest_complete_checkpoints(runtime: Runtime) -> None:
    # `memory://` is in the memory of this process, so two ranks cannot share it.
    check_histories(lambda _world, url, keep: RankRun(url, keep, runtime), "memory://history", examples=40)


def test_history_in_a_bucket_keeps_the_newest_complete_checkpoints(bucket: str, runtime: Runtime) -> None:
    history = Histories(bucket, lambda _world, url, keep: RankRun(url, keep, runtime))
    history.begin(world=1, keep=3)
    history.damage_step(3, "tensors cut short")
    history.resume(world=1, keep=3)
    history.save(1)
    history.save(1)
    history.damage_step(3, "manifest missing")
    history.take_over_during_save(keep=2, steps=1, same=True)
    history.save(0, crash=1)
    history.resume(world=1, keep=1)
    history.save(0)
    history.end_with_save_pending(1)


def test_save_that_crashes_while_writing_keeps_the_earlier_checkpoints(tmp_path: Path, runtime: Runtime) -> None:
    history = Histories(f"file://{tmp_path}", lambda _world, url, keep: RankRun(url, keep, runtime))
    history.begin(world=1, keep=3)
    before = history._store.complete_checkpoints()
    history.save(1, CRASH_WHILE_WRITING)
    assert history._run is None, "the save must crash"
    assert history._store.complete_checkpoints() == before
    history.resume(world=1, keep=3)
    history.save(1)


@pytest.mark.long
def test_histories_in_a_bucket_keep_the_newest_complete_checkpoints(bucket: str, runtime: Runtime) -> None:
    check_histories(lambda _world, url, keep: RankRun(url, keep, runtime), bucket, examples=1)
