"""Rules of settings: ranges of numbers, patterns of texts, and types of settings with such rules."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, get_args, get_type_hints

import tyro

from trainer.exit_codes import ConfigurationError

MAX_SEED = 2**31 - 1
MAX_PORT = 2**16 - 1
MAX_COUNT = 10**9
"""Upper bound of all counts of a run."""
MAX_CLASSES = 1_000_000
MAX_THREADS = 1024
MAX_TIMEOUT_SECONDS = 366 * 24 * 3600
"""A year, in seconds."""
MAX_FACTOR = 1e37
"""Largest learning rate and weight decay. Larger ones could overflow 32-bit weights."""
FLOAT8_MULTIPLE = 16
"""Sizes of a float8 matrix product on a GPU must be multiples of this: https://github.com/pytorch/pytorch/pull/108308."""
MAX_NAME_BYTES = 255
_BUCKET_URL = (
    r"(gs://[a-z0-9]([-._a-z0-9]*[a-z0-9])?(/|$)|s3://[a-z0-9]([-.a-z0-9]*[a-z0-9])?(/|$))"
    r"[^?#\x00-\x1f\x7f]*(?<!\s)"
)
_FOLDER_URL = r"file:///[^/\s\x00-\x1f\x7f]([^\x00-\x1f\x7f]*\S)?"
_UNCHAINED = r"(?!.*::|.*[\ud800-\udfff])"
"""Start of a pattern for URLs. fsspec would split a URL at `::`, and a bucket cannot store a name that is not UTF-8."""
BUCKET_PATTERN = f"{_UNCHAINED}({_FOLDER_URL}|{_BUCKET_URL})"
DATA_PATTERN = f"{_UNCHAINED}((?![a-zA-Z][-+.a-zA-Z0-9]*:/).*|{_FOLDER_URL}|{_BUCKET_URL})"
"""A path, or the URL of a folder."""
JOB_PATTERN = r"(?![.\s])(?!.*::)[^/\\*?\[\]#%\x00-\x1f\x7f-\xa0\u2028\u2029\ud800-\udfff]+(?<!\s)"
"""Folder name for disks and buckets, without invisible characters or characters with a meaning in URLs or globs."""

TEXT_SUFFIXES = {"document": ".txt", "lines": ".jsonl", "table": ".parquet", "tokens": ".npy"}
"""Format of a data file for language models -> suffix. `workloads/trainer_flags.json` has a generated copy."""
CHECKPOINTS, PROFILES = SHARED_FOLDERS = "checkpoints", "profiles"
"""Folders of the bucket that hold a subfolder for each job."""


def invalid_setting(key: str, value: object, allowed: str, remedy: str) -> ConfigurationError:
    """Return the error for an invalid value of a setting."""
    return ConfigurationError(f"{key} = {value!r}: must be {allowed}; {remedy}")


@dataclass(frozen=True)
class Range:
    """Bounds of a number. The validation of stacks reads a generated copy in `workloads/trainer_flags.json`."""

    least: float = 0
    most: float = MAX_COUNT
    is_exclusive: bool = False
    """True if `least` itself is not allowed."""
    meaning: str = ""
    """Noun phrase that explains the number in an error; empty if its bounds explain it."""

    def check(self, key: str, value: float) -> None:
        """Reject NaN and any number outside these bounds."""
        if self.is_exclusive:
            is_allowed, allowed = self.least < value <= self.most, f"more than {self.least} and at most {self.most}"
        else:
            is_allowed, allowed = self.least <= value <= self.most, f"from {self.least} to {self.most}"
        if not is_allowed:
            allowed += f", {self.meaning}" if self.meaning else ""
            raise invalid_setting(key, value, allowed, f"give {_flag(key)} another value")


@dataclass(frozen=True)
class Text:
    """Pattern of a text. The validation of stacks reads a generated copy in `workloads/trainer_flags.json`."""

    pattern: str
    allowed: str
    """Noun phrase for the allowed texts in an error."""
    remedy: str
    max_bytes: int | None = None

    def check(self, key: str, value: str) -> None:
        """Reject a text that does not match the pattern or is too long."""
        if not re.fullmatch(self.pattern, value):
            raise invalid_setting(key, value, self.allowed, self.remedy.format(flag=_flag(key)))
        if self.max_bytes is not None and len(value.encode()) > self.max_bytes:
            raise invalid_setting(key, value, f"at most {self.max_bytes} bytes", f"give {_flag(key)} a shorter name")


def _flag(key: str) -> str:
    return f"--{key.replace('_', '-')}"


Count = Annotated[int, Range(1)]
NaturalNumber = Annotated[int, Range()]
Amount = Annotated[float, Range()]
Share = Annotated[float, Range(0, 1)]
StepShare = Annotated[float, Range(0, 1, meaning="a share of the run's steps")]
Epochs = Annotated[int, Range(1), tyro.conf.arg(aliases=("--num-epochs",))]
LearningRate = Annotated[float, Range(0, MAX_FACTOR, is_exclusive=True), tyro.conf.arg(aliases=("--lr",))]
WeightDecay = Annotated[float, Range(0, MAX_FACTOR)]
BucketUrl = Annotated[
    str,
    Text(
        f"({BUCKET_PATTERN})?",
        "file:///FOLDER, gs://BUCKET/FOLDER or s3://BUCKET/FOLDER, no '::'; BUCKET in lower case, then no '?' or '#'",
        "give --bucket such a URL, or leave it out",
    ),
]
FolderName = Annotated[
    str,
    Text(
        JOB_PATTERN,
        r"one folder name without /\*?[]#% or '::', without '.' at the start, without a space at either end",
        "give --job another name",
        max_bytes=MAX_NAME_BYTES,
    ),
]
StepRange = Annotated[
    str, Text("([0-9]{1,10}-[0-9]{1,10})?", f"A-B with 1 <= A <= B <= {MAX_COUNT}, such as 10-15", "give two steps")
]
DigitsFolder = Annotated[str, Text(r"(?!.*://).+", "a folder with the digits, not a URL", "give --data-dir a folder")]
DataFolder = Annotated[
    str,
    Text(
        DATA_PATTERN,
        "a folder, gs://BUCKET/FOLDER or s3://BUCKET/FOLDER, no '::'; BUCKET in lower case, then no '?' or '#'",
        "give {flag} such a folder",
    ),
]
TokenizerName = Annotated[
    str,
    Text(
        rf"bytes|bpe|(?=.*\.json$){DATA_PATTERN}",
        "bytes, bpe, or a tokenizer.json as FOLDER/tokenizer.json, gs://BUCKET/... or s3://BUCKET/...",
        "give --tokenizer one of these",
    ),
]
ModelName = Annotated[
    str,
    Text(r"[a-z0-9_/]+(\.\S+)?", "a classifier of torchvision or timm, such as resnet50", "give --arch such a name"),
    tyro.conf.arg(aliases=("--model",)),
]


def rules(config: type) -> Mapping[str, Range | Text]:
    """Return the rule of each setting that has one."""
    hints = get_type_hints(config, include_extras=True)
    return {name: rule for name, hint in hints.items() for rule in get_args(hint) if isinstance(rule, Range | Text)}


def check_settings(settings: object) -> None:
    """Raise ConfigurationError for the first setting that breaks its rule."""
    for key, rule in rules(type(settings)).items():
        rule.check(key, getattr(settings, key))
