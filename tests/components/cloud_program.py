"""Run of the whole program for a cloud's settings against Pulumi mocks, without image builds and without a cloud."""

from __future__ import annotations

import functools
import json
from typing import Any

import pytest

from infra.image import cloud_image
from tests.components.test_program import program
from tests.recording import RecordingEngine


@functools.cache
def _graph(platform: str, jobs: str) -> tuple[RecordingEngine, dict[str, Any]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cloud_image, "prepare_context", lambda: None)
        return program(json.loads(platform), json.loads(jobs))


def graph(platform: dict[str, Any], jobs: list[dict[str, Any]] | None = None) -> tuple[RecordingEngine, dict[str, Any]]:
    """Return the program's registrations and outputs. Equal settings run once."""
    return _graph(json.dumps(platform), json.dumps(jobs or []))
