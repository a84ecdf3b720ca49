"""Jobs are ended first where their nodes are machines that go too, and only there."""

from __future__ import annotations

from typing import Any

import pytest

from commands.down import has_nodes_and_jobs


@pytest.mark.parametrize(
    ("outputs", "ended_first"),
    [
        ({"jobs": ["train"], "kubeconfig": "[secret]"}, True),
        ({"jobs": ["train"], "kubeconfig": None}, False),
        ({"jobs": [], "kubeconfig": "[secret]"}, False),
        ({}, False),
    ],
)
def test_jobs_end_before_their_nodes(outputs: dict[str, Any], ended_first: bool) -> None:
    assert has_nodes_and_jobs(outputs) is ended_first
