"""Rules of buckets and image repositories."""

from __future__ import annotations

import ipaddress
import re

from simulation.cloud.kind import Found, at, rule
from simulation.cloud.state import Properties

_BUCKET = re.compile(r"[a-z0-9][-_a-z0-9]{1,61}[a-z0-9]")
_REPOSITORY = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?|([a-z]+\.)?gcr\.io")
_CLASSES = ("STANDARD", "NEARLINE", "COLDLINE", "ARCHIVE", "MULTI_REGIONAL", "REGIONAL")


@rule("https://cloud.google.com/storage/docs/buckets#naming")
def bucket_name(inputs: Properties) -> Found:
    """Require a valid name that Google does not reserve."""
    name = inputs.get("name")
    if not isinstance(name, str):
        return
    if not all(_BUCKET.fullmatch(part) or len(part) < 3 for part in name.split(".")) or not 3 <= len(name) <= 222:
        yield "name", f"{name!r} must be 3 to 63 lower-case letters, digits, '-' and '_'"
    elif len(name) > 63 and "." not in name:
        yield "name", f"{name!r} must have at most 63 characters"
    elif name.startswith("goog") or "google" in name:
        yield "name", f"{name!r} must not begin with 'goog' nor contain 'google'"
    elif _is_address(name):
        yield "name", f"{name!r} must not be an IP address"


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


@rule("https://cloud.google.com/storage/docs/storage-classes")
def storage_class(inputs: Properties) -> Found:
    """Require a storage class that exists."""
    name = inputs.get("storageClass")
    if isinstance(name, str) and name not in _CLASSES:
        yield "storageClass", f"{name!r} must be one of {', '.join(_CLASSES)}"


@rule("https://cloud.google.com/storage/docs/hns-overview")
def folders_need_uniform_access(inputs: Properties) -> Found:
    """Require uniform access, and no object versioning, for a hierarchical namespace."""
    if not at(inputs, "hierarchicalNamespace.enabled"):
        return
    if inputs.get("uniformBucketLevelAccess") is False or "uniformBucketLevelAccess" not in inputs:
        yield "uniformBucketLevelAccess", "must be true for a hierarchical namespace"
    if at(inputs, "versioning.enabled"):
        yield "versioning.enabled", "cannot be on together with a hierarchical namespace"


@rule("https://cloud.google.com/storage/docs/soft-delete")
def soft_delete_days(inputs: Properties) -> Found:
    """Require 0, or 7 to 90 days."""
    seconds = at(inputs, "softDeletePolicy.retentionDurationSeconds")
    if isinstance(seconds, int) and seconds != 0 and not 604_800 <= seconds <= 7_776_000:
        yield "softDeletePolicy.retentionDurationSeconds", f"{seconds} must be 0, or 604800 to 7776000 (7 to 90 days)"


@rule("https://cloud.google.com/artifact-registry/docs/repositories/create-repos")
def repository_id(inputs: Properties) -> Found:
    """Require a valid name of at most 63 characters."""
    name = inputs.get("repositoryId")
    if isinstance(name, str) and not _REPOSITORY.fullmatch(name):
        yield "repositoryId", f"{name!r} must be 1 to 63 lower-case letters, digits and '-', first a letter"


RULES = (bucket_name, storage_class, folders_need_uniform_access, soft_delete_days)
