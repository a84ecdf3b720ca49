"""Hypothesis settings of the property tests: no time limit per example, because a busy machine would exceed it."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("trainyard", deadline=None)
settings.load_profile("trainyard")
