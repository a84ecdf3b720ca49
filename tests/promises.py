"""Promises of README.md, the Makefile and the docs, and the tests that fail if a promise breaks: docs/promises.md."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]
PAGE = PROJECT / "docs" / "promises.md"
README = "README.md"
MARKDOWN_LINK = re.compile(r"\[([^]]+)\]\([^)]+\)")


@dataclass(frozen=True)
class Promise:
    """Promise of a document."""

    document: str
    """Path of the document in the project."""
    sentence: str
    """Quotation from the document, as a cell of a table."""
    tests: tuple[str, ...]
    """Node ids of the tests that fail if the promise breaks. An id without parameters means all parameters."""


def _promises() -> Iterator[Promise]:
    """Yield the rows of docs/promises.md."""
    document = ""
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            document = line.removeprefix("## ")
        elif line.startswith("| ") and line != "| promise | test |":
            sentence, _, tests = line.removeprefix("| ").removesuffix(" |").rpartition(" | ")
            yield Promise(document, sentence, tuple(re.findall(r"`([^`]+)`", tests)))


PROMISES = tuple(_promises())


SLOW_TESTS = (
    "tests/plugins/test_lifecycle.py::test_update_changes_the_object_in_place",
    "tests/rehearsal/test_fabric_replaced.py::test_new_range_replaces_pool_before_subnets",
    "tests/rehearsal/test_rehearsal.py::test_a_v4_32_slice_is_four_pods_of_four_chips",
    "tests/trainer/test_faults.py::test_randomly_killed_ranks_end_with_the_same_result[0]",
    "tests/trainer/test_launch.py::test_launcher_exits_with_the_code_of_the_failed_rank_plus_the_offset_if_retryable",
    "tests/trainer/test_restarts.py::test_killed_ranks_restart_while_all_launchers_stay[digits-2]",
    "tests/trainer/test_sharding.py::test_groups_of_ranks_have_the_losses_of_one_process[ddp]",
    "tests/trainer/test_training.py::test_killed_and_preempted_run_ends_with_the_same_result",
    "tests/trainer/test_training.py::test_ranks_evaluate_the_whole_test_set",
    "tests/trainer/test_training.py::test_two_ranks_have_nearly_the_weights_of_one_rank_on_the_same_samples",
    "tests/trainer/test_training.py::test_weights_that_are_not_finite_are_not_saved",
    "tests/trainer/test_watchdog.py::test_sleeping_rank_makes_all_ranks_print_stacks_and_exit",
)
"""Slow tests that `make test` runs in addition to the tests of README.md's promises."""


def core() -> frozenset[str]:
    """Return the node ids of the tests of README.md's promises and of `SLOW_TESTS`."""
    promised = {test for promise in PROMISES if promise.document == README for test in promise.tests}
    return frozenset(promised.union(SLOW_TESTS))


def cell(text: str) -> str:
    """Return a text as a cell of a table.

    Links become their texts, because their targets are relative to another page.
    """
    return MARKDOWN_LINK.sub(r"\1", text).replace("|", "\\|")
