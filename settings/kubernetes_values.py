"""Values in Kubernetes' format: quantities of CPU and memory, and names. Standard library only."""

from __future__ import annotations

import re
from decimal import Decimal

_CPU = re.compile(r"(?P<number>\d+(?:\.\d+)?)(?P<unit>m?)")
_MEMORY = re.compile(r"(?P<number>\d+)(?P<unit>Mi|Gi|Ti|M|G|T)")
_BYTES = {"Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "M": 10**6, "G": 10**9, "T": 10**12}
_MAX_QUANTITY = 2**50
"""Maximum quantity, in bytes or millicores. No host has more."""
LABEL_LIMIT = 63
"""Maximum length of a DNS label (RFC 1035 section 2.3.4). Kubernetes applies it to host names, Services and labels."""

_LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")


def parse_cpu(text: str) -> int:
    """Return the millicores of a CPU quantity such as `2`, `0.5` or `500m`. Raises ValueError for other text.

    https://kubernetes.io/docs/concepts/configuration/manage-resources-containers/#meaning-of-cpu
    """
    match = _CPU.fullmatch(text)
    millicores = Decimal(match["number"]) * (1 if match["unit"] else 1000) if match else Decimal(0)
    if not 1 <= millicores <= _MAX_QUANTITY or millicores % 1:
        raise ValueError("must be a number of CPUs above 0, no finer than 1m; write for example 2, 0.5 or 500m")
    return int(millicores)


def format_cpu(millicores: int) -> str:
    """Return the quantity in the API server's format."""
    return f"{millicores}m" if millicores % 1000 else str(millicores // 1000)


def parse_memory(text: str) -> int:
    """Return the bytes of a memory quantity such as `512Mi` or `2Gi`. Raises ValueError for other text."""
    match = _MEMORY.fullmatch(text)
    size = int(match["number"]) * _BYTES[match["unit"]] if match else 0
    if not 1 <= size <= _MAX_QUANTITY:
        raise ValueError("must be a whole number above 0 with a unit, Mi, Gi, Ti, M, G or T; write for example 2Gi")
    return size


def format_memory(size: int) -> str:
    """Return the quantity in the largest unit that keeps it whole, else rounded to 0.1 Gi."""
    for unit, factor in sorted(_BYTES.items(), key=lambda row: row[1], reverse=True):
        if size % factor == 0:
            return f"{size // factor}{unit}"
    return f"{size / 2**30:.1f}Gi"


def check_label(value: str, limit: int = LABEL_LIMIT) -> str:
    """Return `value` if it is a valid Service name: a DNS label that starts with a letter. Raises ValueError otherwise.

    https://kubernetes.io/docs/concepts/overview/working-with-objects/names/#rfc-1035-label-names
    """
    if len(value) > limit or not _LABEL.fullmatch(value):
        raise ValueError(
            f"must be a DNS label: 1 to {limit} lower-case letters, digits and '-', "
            "starting with a letter, not ending with '-'; write for example 'digits-2'"
        )
    return value
