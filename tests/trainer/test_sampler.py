"""An epoch has every sample exactly once, for any number of samples, ranks and restarts."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from trainer.config import ImagenetConfig
from trainer.data.datasets import GeneratedImages, distort
from trainer.data.sampler import EpochSampler, Share
from trainer.rules import MAX_COUNT, MAX_SEED

SIZES = st.integers(1, 300)
WORLDS = st.integers(1, 9)
BATCHES = st.integers(1, 40)


def samplers(size: int, world: int, batch_size: int, saved_state: dict[str, int] | None = None) -> list[EpochSampler]:
    """Return the samplers of all ranks, in the saved state if given."""
    found = [EpochSampler(size, rank=rank, world=world, batch_size=batch_size, seed=7) for rank in range(world)]
    if saved_state:
        for sampler in found:
            sampler.load_state(saved_state)
    return found


def take_step(ranks: list[EpochSampler]) -> list[int]:
    """Return the samples of one step over all ranks. Check that the ranks agree and that no batch is too large."""
    shares = [sampler.next() for sampler in ranks]
    assert len({(share.total, share.position, share.epoch) for share in shares}) == 1
    offsets = [sum(len(earlier.indices) for earlier in shares[:rank]) for rank in range(len(ranks))]
    assert [share.offset for share in shares] == offsets
    batch_size = ranks[0].global_batch // len(ranks)
    assert all(len(share.indices) <= batch_size for share in shares)
    assert len({sampler.position for sampler in ranks}) == 1
    return [index for share in shares for index in share.indices.tolist()]


@given(SIZES, WORLDS, BATCHES)
def test_epoch_contains_every_sample_once(size: int, world: int, batch_size: int) -> None:
    ranks = samplers(size, world, batch_size)
    steps = ranks[0].steps_left
    seen = [index for _ in range(steps) for index in take_step(ranks)]
    assert sorted(seen) == list(range(size))
    assert {sampler.steps_left for sampler in ranks} == {0}


@given(SIZES, WORLDS, BATCHES, st.integers(0, 20), st.integers(0, 4))
def test_steps_until_counts_remaining_steps(size: int, world: int, batch_size: int, done: int, epochs: int) -> None:
    (rank, *_) = samplers(size, world, batch_size)
    for _ in range(min(done, rank.steps_left)):
        rank.next()
    expected, steps = rank.steps_until(epochs), 0
    while rank.epoch < epochs:
        while rank.steps_left:
            rank.next()
            steps += 1
        rank.next_epoch()
    assert steps == expected
    rank.next_epoch()
    assert rank.epoch_steps == rank.steps_left


@given(SIZES, BATCHES, st.lists(st.tuples(WORLDS, st.integers(0, 20)), min_size=1, max_size=4), WORLDS)
def test_restarts_with_other_numbers_of_ranks_repeat_and_skip_nothing(
    size: int, batch_size: int, runs: list[tuple[int, int]], last_world: int
) -> None:
    seen: list[int] = []
    saved_state = {"epoch": 3, "position": 0, "num_samples": size}
    for world, steps in runs:
        ranks = samplers(size, world, batch_size, saved_state)
        for _ in range(min(steps, ranks[0].steps_left)):
            seen += take_step(ranks)
        saved_state = ranks[0].state()
    ranks = samplers(size, last_world, batch_size, saved_state)
    while ranks[0].steps_left:
        seen += take_step(ranks)
    assert sorted(seen) == list(range(size))


@given(SIZES, WORLDS, BATCHES, st.integers(0, 50))
def test_restart_takes_the_same_steps(size: int, world: int, batch_size: int, stop: int) -> None:
    undisturbed = samplers(size, world, batch_size)
    for _ in range(min(stop, undisturbed[0].steps_left)):
        take_step(undisturbed)
    restarted = samplers(size, world, batch_size, undisturbed[0].state())
    while undisturbed[0].steps_left:
        assert take_step(restarted) == take_step(undisturbed)


@given(SIZES, st.integers(1, 4), BATCHES)
def test_steps_do_not_depend_on_the_number_of_ranks(size: int, world: int, batch_size: int) -> None:
    one, many = samplers(size, 1, batch_size * world), samplers(size, world, batch_size)
    while one[0].steps_left:
        assert take_step(one) == take_step(many)


def test_epochs_and_seeds_have_different_orders() -> None:
    def order(seed: int, epoch: int) -> torch.Tensor:
        sampler = EpochSampler(100, rank=0, world=1, batch_size=100, seed=seed)
        for _ in range(epoch):
            sampler.next_epoch()
        return sampler.next().indices

    assert not torch.equal(order(0, 0), order(0, 1))
    assert not torch.equal(order(0, 0), order(1, 0))
    assert torch.equal(order(5, 2), order(5, 2))


def test_resized_training_set_continues_at_the_same_fraction() -> None:
    sampler = EpochSampler(200, rank=0, world=1, batch_size=10, seed=0)
    sampler.load_state({"epoch": 1, "position": 50, "num_samples": 100})
    assert (sampler.epoch, sampler.position) == (1, 100)


@given(SIZES, BATCHES, st.integers(0, 20))
def test_epoch_of_another_seed_is_finished_with_that_seed(size: int, batch_size: int, stop: int) -> None:
    (before,) = samplers(size, 1, batch_size)
    seen = [index for _ in range(min(stop, before.steps_left)) for index in take_step([before])]
    after = EpochSampler(size, rank=0, world=1, batch_size=batch_size, seed=8)
    after.load_state(before.state())
    assert after.state() == before.state()
    while after.steps_left:
        seen += take_step([after])
    assert sorted(seen) == list(range(size))
    after.next_epoch()
    fresh = EpochSampler(size, rank=0, world=1, batch_size=batch_size, seed=8)
    fresh.next_epoch()
    assert take_step([after]) == take_step([fresh]), "the next epoch must use the new seed"


def share_at(position: int, epoch: int) -> Share:
    """Return a share of two samples at this position of this epoch."""
    samples = torch.arange(2)
    return Share(indices=samples, all_indices=samples, offset=0, total=2, epoch=epoch, position=position)


def test_distort_with_largest_seed_epoch_and_position_is_finite() -> None:
    images = torch.rand(2, 1, 28, 28)
    at_end = distort(images, share_at(MAX_COUNT, MAX_COUNT), seed=MAX_SEED)
    assert at_end.isfinite().all()
    assert not torch.equal(at_end, distort(images, share_at(MAX_COUNT - 1, MAX_COUNT), seed=MAX_SEED))


def test_largest_seed_and_epoch_give_samples() -> None:
    sampler = EpochSampler(10, rank=0, world=1, batch_size=5, seed=MAX_SEED)
    sampler.epoch = MAX_COUNT
    assert len(sampler.next().indices) == 5
    config = ImagenetConfig(seed=MAX_SEED, batch_size=2, image_size=8)
    assert GeneratedImages(config, torch.device("cpu"), rank=9999, world=10_000).num_samples > 0
