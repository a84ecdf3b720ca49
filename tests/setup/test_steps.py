"""Which steps a machine goes through: what a stack builds from is there before it builds."""

from __future__ import annotations

import pytest

from setup.progress import Step
from setup.steps import DEBIAN, DIGITS, RUNTIME_STEP, rehearsal_steps, steps


def names(found: list[Step]) -> list[str]:
    """The steps in words."""
    return [each.name for each in found]


@pytest.mark.parametrize("image", [True, False])
def test_a_stack_that_builds_an_image_has_the_digits_first(image: bool) -> None:
    assert (DIGITS in names(rehearsal_steps(frozenset(), "eks", image=image))) is image
    assert (DIGITS in names(steps(cluster=False, image=image))) is image


def test_the_cluster_here_builds_its_trainer_image_from_them() -> None:
    found = names(steps(cluster=True))
    assert found.index(DIGITS) < found.index("trainer image")


def test_trainer_image_waits_for_no_go_program_but_those_that_store_it() -> None:
    found = {each.name: each for each in steps(cluster=True)}
    assert found["trainer image"].after == [DEBIAN, DIGITS, RUNTIME_STEP]
    assert found[DIGITS].after == [DEBIAN]
    assert set(found) >= {DEBIAN, DIGITS, RUNTIME_STEP}


def test_container_runtime_comes_first_of_the_go_programs() -> None:
    found = names(steps(cluster=True))
    assert found.index(RUNTIME_STEP) == found.index("Go toolchain") + 1


def test_stack_without_nodes_here_builds_no_container_runtime() -> None:
    assert RUNTIME_STEP not in names(steps(cluster=False))
    assert RUNTIME_STEP not in names(rehearsal_steps(frozenset(), "gke"))
