"""The kinds of AWS resources that a training stack uses."""

from __future__ import annotations

from collections.abc import Mapping

from rehearsal.cloud.kind import Kind

KINDS: Mapping[str, Kind] = {}
"""Every kind, by type."""
