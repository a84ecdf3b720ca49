"""Validation of single settings of a run."""

from __future__ import annotations

import re
from dataclasses import dataclass

from trainer.exit_codes import ConfigurationError

MAX_SEED = 2**31 - 1
MAX_PORT = 2**16 - 1
MAX_COUNT = 10**9
"""Upper bound of all counts of a run."""
MAX_CLASSES = 1_000_000
"""Upper bound of the number of classes."""
MAX_THREADS = 1024
"""Upper bound of the number of threads."""
MAX_TIMEOUT_SECONDS = 366 * 24 * 3600
"""A year, in seconds."""
MAX_FACTOR = 1e37
"""Largest factor of a 32-bit weight that cannot overflow."""
MAX_NAME_BYTES = 255
"""Most bytes of a file name."""
_BUCKET_PREFIXES = {
    "gs": r"gs://[a-z0-9]([-._a-z0-9]*[a-z0-9])?(/|$)",
    "s3": r"s3://[a-z0-9]([-.a-z0-9]*[a-z0-9])?(/|$)",
    "az": r"az://[a-z0-9]([-a-z0-9]*[a-z0-9])?(/|$)",
}
"""Patterns of object store URLs up to the bucket's name."""
_PATH = r"[^?#\x00-\x1f\x7f]*(?<!\s)"
_FOLDER = r"file:///[^/\s\x00-\x1f\x7f]([^\x00-\x1f\x7f]*\S)?"
_UNCHAINED = r"(?!.*::|.*[\ud800-\udfff])"
"""fsspec splits a URL at `::`, and a bucket cannot store a name that is not UTF-8."""
BUCKET = re.compile(f"{_UNCHAINED}({_FOLDER}|({_BUCKET_PREFIXES['gs']}|{_BUCKET_PREFIXES['s3']}){_PATH})")
IMAGES = re.compile(
    f"{_UNCHAINED}((?![a-zA-Z][-+.a-zA-Z0-9]*:/).*|{_FOLDER}|({'|'.join(_BUCKET_PREFIXES.values())}){_PATH})"
)
"""A path, or the URL of a folder."""
JOB = re.compile(r"(?![.\s])(?!.*::)[^/\\*?\[\]#%\x00-\x1f\x7f-\xa0\u2028\u2029\ud800-\udfff]+(?<!\s)")
"""A folder name for disks and buckets, without characters of URLs and patterns and without invisible ones."""

CHECKPOINTS, PROFILES = SHARED_FOLDERS = "checkpoints", "profiles"
"""Folders of the bucket that hold a subfolder for each job."""


def invalid_setting(key: str, value: object, allowed: str, remedy: str) -> ConfigurationError:
    """Return the error for an invalid value of a setting."""
    return ConfigurationError(f"{key} is {value!r}; allowed is {allowed}: {remedy}")


def at_least(least: int, **settings: int) -> None:
    """Reject counts below `least` and above MAX_COUNT."""
    for key, value in settings.items():
        remedy = f"give {_flag(key)} another value"
        if not value >= least:
            raise invalid_setting(key, value, f"{least} or more", remedy)
        if value > MAX_COUNT:
            raise invalid_setting(key, value, f"at most {MAX_COUNT}", remedy)


def within(least: float, most: float, **settings: float) -> None:
    """Reject numbers outside these bounds."""
    for key, value in settings.items():
        if not least <= value <= most:
            raise invalid_setting(key, value, f"{least} to {most}", f"give {_flag(key)} another value")


def positive(most: float, **settings: float) -> None:
    """Reject numbers that are not above 0 or that are above `most`."""
    for key, value in settings.items():
        if not 0 < value <= most:
            raise invalid_setting(key, value, f"more than 0 and at most {most}", f"give {_flag(key)} another value")


@dataclass(frozen=True)
class Range:
    """Bounds of a number. `workloads/trainer_flags.json` has them for the validation of stacks."""

    least: float = 0
    most: float = MAX_COUNT
    is_exclusive: bool = False
    """True if `least` itself is not allowed."""

    def check(self, key: str, value: float) -> None:
        """Reject a number outside these bounds."""
        if self.is_exclusive:
            positive(self.most, **{key: value})
        elif isinstance(value, int) and self.most == MAX_COUNT:
            at_least(int(self.least), **{key: value})
        else:
            within(self.least, self.most, **{key: value})


@dataclass(frozen=True)
class Text:
    """Pattern of a text. `workloads/trainer_flags.json` has it for the validation of stacks."""

    pattern: str
    allowed: str
    """The noun phrase of an error."""
    remedy: str
    max_bytes: int | None = None

    def check(self, key: str, value: str) -> None:
        """Reject another text."""
        if not re.fullmatch(self.pattern, value):
            raise invalid_setting(key, value, self.allowed, self.remedy)
        if self.max_bytes is not None and len(value.encode()) > self.max_bytes:
            raise invalid_setting(key, value, f"at most {self.max_bytes} bytes", f"give {_flag(key)} a shorter name")


def _flag(key: str) -> str:
    return f"--{key.replace('_', '-')}"
