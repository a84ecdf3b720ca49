"""Schema: base of the models of custom resources' parts. No Pulumi."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Schema:
    """Part of a custom resource: only the fields that we set. A test checks them against the CRDs.

    The official Python models (kubeflow-training, kubeflow-trainer-api) cannot hold Pulumi's outputs.
    """

    def plain(self) -> dict[str, Any]:
        """Return it as the API has it: camelCase, without fields that are None."""
        found = {_camel(each.name): _plain(getattr(self, each.name)) for each in fields(self)}
        return {name: value for name, value in found.items() if value is not None}


def _plain(value: Any) -> Any:
    if isinstance(value, Schema):
        return value.plain()
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value


def _camel(name: str) -> str:
    return re.sub(r"_([a-z])", lambda match: match[1].upper(), name)
