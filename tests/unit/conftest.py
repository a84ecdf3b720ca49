"""Settings of the property tests: no time limit for a single example, which a busy machine would exceed."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("trainyard", deadline=None)
settings.load_profile("trainyard")
