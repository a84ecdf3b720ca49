"""Differences that a Terraform provider ignores, and conditions under which a change replaces a resource.

The keys are the names of the provider's functions.
"""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Callable, Mapping
from typing import Any

_DEFAULT = re.compile(r"EmptyOrDefaultStringSuppress\('(?P<word>.*)'\)")
_VERSIONED = re.compile(r"^https://[^/]+/(compute/)?[^/]+/")


def _same_link(old: Any, new: Any) -> bool:
    """Return True if two links differ only in host and API version. A plain name matches a whole link."""
    if "/" not in str(new):
        return str(old).rpartition("/")[2] == str(new)
    return _VERSIONED.sub("", str(old)) == _VERSIONED.sub("", str(new))


def _same_name(old: Any, new: Any) -> bool:
    return str(old).rpartition("/")[2] == str(new).rpartition("/")[2]


def _same_letters(old: Any, new: Any) -> bool:
    return str(old).lower() == str(new).lower()


def _same_project(old: Any, new: Any) -> bool:
    return str(old).removeprefix("projects/") == str(new).removeprefix("projects/")


def _same_json(old: Any, new: Any) -> bool:
    try:
        return bool(json.loads(old) == json.loads(new))
    except (TypeError, ValueError):
        return False


SUPPRESSIONS: Mapping[str, Callable[[Any, Any], bool]] = {
    "CompareSelfLinkOrResourceName": _same_link,
    "CompareSelfLinkRelativePaths": _same_link,
    "CompareResourceNames": _same_name,
    "CompareProjectName": _same_project,
    "CaseDiffSuppress": _same_letters,
    "StorageBucketDiffSuppress": _same_name,
    "SuppressEquivalentPolicyDiffs": _same_json,
    "SuppressEquivalentIAMPolicyDocuments": _same_json,
    "SuppressEquivalentJSONDiffs": _same_json,
    "SuppressEquivalentStringCaseInsensitive": _same_letters,
}
"""Name -> function that returns True if the provider treats both values as equal. Other names are not simulated."""


MISSING_BLOCK = "SuppressMissingOptionalConfigurationBlock"
"""Name of the provider's function that ignores the removal of a block."""


def is_suppressed(name: str | None, old: Any, new: Any) -> bool:
    """Return True if the provider ignores the difference between two values."""
    if name is None:
        return False
    if match := _DEFAULT.fullmatch(name):
        return {old, new} <= {"", match["word"]}
    return name in SUPPRESSIONS and SUPPRESSIONS[name](old, new)


def _shrinks(old: Any, new: Any) -> bool:
    """Return True if the new range does not contain the old one. A subnet's range can only grow in place."""
    try:
        before, after = ipaddress.ip_network(old, strict=False), ipaddress.ip_network(new, strict=False)
    except ValueError:
        return False
    assert isinstance(before, ipaddress.IPv4Network)
    return not (isinstance(after, ipaddress.IPv4Network) and before.subnet_of(after))


def _turned_off(old: Any, new: Any) -> bool:
    return bool(old) and not new


CONDITIONS: Mapping[str, Callable[[Any, Any], bool]] = {
    "IsShrinkageIpCidr": _shrinks,
    "isBeenEnabled": _turned_off,
    "isPolicyLocked": _turned_off,
}
"""Name of a provider's condition -> function of the old and the new value."""


def replaces_if(condition: str, old: Any, new: Any) -> bool:
    """Return True if a change under this condition replaces the resource.

    Raises KeyError for an unknown condition.
    """
    return CONDITIONS[condition](old, new)
