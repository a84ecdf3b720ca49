"""API server of a test session, and stacks that the Pulumi CLI deploys on it."""

import itertools
import os
from collections.abc import Callable, Iterator

import pytest

from tests.plugins.api_server import ApiServer
from tests.plugins.stack import Stack


@pytest.fixture(scope="session")
def api_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    """Yield one server for all tests."""
    server = ApiServer(tmp_path_factory.mktemp("kubernetes"))
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def new_stack(api_server: ApiServer, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Stack]:
    """Return a function that creates a stack with a program, and a new namespace for the stack."""
    numbers = itertools.count(1)

    def make(program: str) -> Stack:
        number = next(numbers)
        stack = Stack(tmp_path_factory.mktemp("stack"), api_server.kubeconfig, f"space-{os.getpid()}-{number}")
        stack.core().create_namespace({"metadata": {"name": stack.namespace}})
        stack.write(program)
        stack.run("stack", "init", "test")
        return stack

    return make
