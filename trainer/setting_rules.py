"""What single settings of a run may be, and how others are refused."""

from __future__ import annotations

import re

from trainer.exit_codes import ConfigurationError

LARGEST_SEED = 2**31 - 1
LARGEST_PORT = 2**16 - 1
LARGEST_COUNT = 10**9
"""More than any count of a run is."""
MOST_CLASSES = 1_000_000
"""More than any model has."""
MOST_THREADS = 1024
"""More than a rank has CPUs."""
LONGEST_TIMEOUT = 366 * 24 * 3600
"""A year, in seconds."""
LARGEST_FACTOR = 1e37
"""What a weight of 32 bits can still be multiplied by."""
LONGEST_NAME = 255
"""Bytes that file systems take for one name."""
_NAMED = {
    "gs": r"gs://[a-z0-9]([-._a-z0-9]*[a-z0-9])?(/|$)",
    "s3": r"s3://[a-z0-9]([-.a-z0-9]*[a-z0-9])?(/|$)",
    "az": r"az://[a-z0-9]([-a-z0-9]*[a-z0-9])?(/|$)",
}
"""How URLs of object stores begin: what their buckets may be called."""
_REST = r"[^?#\x00-\x1f\x7f]*(?<!\s)"
_FOLDER = r"file:///[^/\s\x00-\x1f\x7f]([^\x00-\x1f\x7f]*\S)?"
_UNCHAINED = r"(?!.*::|.*[\ud800-\udfff])"
"""fsspec takes what has `::` for several URLs; and what is no UTF-8 has no name in a bucket."""
BUCKET = re.compile(f"{_UNCHAINED}({_FOLDER}|({_NAMED['gs']}|{_NAMED['s3']}){_REST})")
IMAGES = re.compile(f"{_UNCHAINED}((?![a-zA-Z][-+.a-zA-Z0-9]*:/).*|{_FOLDER}|({'|'.join(_NAMED.values())}){_REST})")
"""A path, or the URL of a folder."""
JOB = re.compile(r"(?![.\s])(?!.*::)[^/\\*?\[\]#%]+(?<!\s)")
"""A folder's name on disks and in buckets: no part of a URL, and no pattern for several."""

CHECKPOINTS, PROFILES = FOLDERS_OF_ALL = "checkpoints", "profiles"
"""Folders of the bucket that have something of every job, in a folder of each."""


def refusal(key: str, value: object, allowed: str, remedy: str) -> ConfigurationError:
    """The error for a setting whose value cannot be obeyed."""
    return ConfigurationError(f"{key} is {value!r}; allowed is {allowed}: {remedy}")


def at_least(least: int, **settings: int) -> None:
    """Refuse counts below `least`, and such as no run has."""
    for key, value in settings.items():
        remedy = f"give {_flag(key)} another value"
        if not value >= least:
            raise refusal(key, value, f"{least} or more", remedy)
        if value > LARGEST_COUNT:
            raise refusal(key, value, f"at most {LARGEST_COUNT}", remedy)


def within(least: float, most: float, **settings: float) -> None:
    """Refuse numbers outside of these bounds."""
    for key, value in settings.items():
        if not least <= value <= most:
            raise refusal(key, value, f"{least} to {most}", f"give {_flag(key)} another value")


def positive(most: float, **settings: float) -> None:
    """Refuse what is not above 0 or more than `most`."""
    for key, value in settings.items():
        if not 0 < value <= most:
            raise refusal(key, value, f"more than 0 and at most {most}", f"give {_flag(key)} another value")


def _flag(key: str) -> str:
    return f"--{key.replace('_', '-')}"
