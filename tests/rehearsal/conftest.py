"""Fixture that creates a stack on simulated clouds."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.rehearsal.simulated_stack import SimulatedStack


@pytest.fixture
def new_stack(tmp_path: Path) -> Callable[[str], SimulatedStack]:
    """Return a function that creates the test's stack from a program."""

    def create(program: str) -> SimulatedStack:
        stack = SimulatedStack(tmp_path)
        stack.begin(program)
        return stack

    return create
