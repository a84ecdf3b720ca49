"""The flags of the trainer's recipes, by which those of a job are checked before anything runs. Pure.

The trainer is reached by its command line alone, so this is a table of what that takes; tests hold it to the trainer.
"""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from settings.problem import Problem

FlagKind = Literal[
    "integer", "number", "switch", "choice", "text", "bucket", "folder", "steps", "model", "digits", "images"
]
MODELS_FILE = Path(__file__).with_name("models.txt")
"""Classifiers of torchvision and timm at the versions of the trainer's image: `python -m tests.trainer.model_names`."""
LARGEST = 10**9
"""More than any count of a training run is."""
_NAMED = {
    "gs": r"gs://[a-z0-9]([-._a-z0-9]*[a-z0-9])?(/|$)",
    "s3": r"s3://[a-z0-9]([-.a-z0-9]*[a-z0-9])?(/|$)",
    "az": r"az://[a-z0-9]([-a-z0-9]*[a-z0-9])?(/|$)",
}
"""How URLs of object stores begin: what their buckets may be called."""
_REST = r"[^?#\x00-\x1f\x7f]*(?<!\s)"
_FOLDER = r"file:///[^/\s\x00-\x1f\x7f]([^\x00-\x1f\x7f]*\S)?"
_UNCHAINED = r"(?!.*::|.*[\ud800-\udfff])"
BUCKET = re.compile(f"{_UNCHAINED}({_FOLDER}|({_NAMED['gs']}|{_NAMED['s3']}){_REST})")
"""As trainer/setting_rules.py has it."""
IMAGES = re.compile(f"{_UNCHAINED}((?![a-zA-Z][-+.a-zA-Z0-9]*:/).*|{_FOLDER}|({'|'.join(_NAMED.values())}){_REST})")
"""A path, or the URL of a folder that the trainer opens."""
_JOB = re.compile(r"(?![.\s])(?!.*::)[^/\\*?\[\]#%]+(?<!\s)")
LONGEST_NAME = 255
"""Bytes that file systems take for one name."""
_OF_URLS = "BUCKET in small letters, and no '::', '?', '#' or blank at its end"
_NO_NAME = r"any of `/\*?[]#%`, '::', a '.' first or a blank at an end"
_SIGNS = re.compile(r"[\x00-\x1f\x7f]")


@dataclass(frozen=True, kw_only=True)
class Flag:
    """What one flag takes."""

    kind: FlagKind
    """Sort of its value."""
    least: float | None = None
    """The lowest number that is allowed."""
    most: float | None = None
    """The highest."""
    above: float | None = None
    """A number that is too low itself, while all above it are allowed."""
    choices: tuple[str, ...] = ()
    """Of a choice, all that there are."""


def _integer(least: float, most: float = LARGEST) -> Flag:
    return Flag(kind="integer", least=least, most=most)


def _choice(*choices: str) -> Flag:
    return Flag(kind="choice", choices=choices)


_SWITCH, _TEXT, _SHARE = Flag(kind="switch"), Flag(kind="text"), Flag(kind="number", least=0, most=1)
_EVERY: Mapping[str, Flag] = {
    "epochs": _integer(1),
    "batch_size": _integer(1),
    "optimizer": _choice("adamw", "sgd"),
    "learning_rate": Flag(kind="number", above=0, most=1e37),
    "warmup": _SHARE,
    "weight_decay": Flag(kind="number", least=0, most=1e37),
    "label_smoothing": _SHARE,
    "log_steps": _integer(1),
    "amp": _SWITCH,
    "accumulate": _integer(1),
    "compile": _SWITCH,
    "channels_last": _SWITCH,
    "seed": _integer(0, 2**31 - 1),
    "device": _choice("auto", "cpu", "cuda", "xla"),
    "sharding": _choice("batch", "model"),
    "threads": _integer(0, 1024),
    "process_group_timeout": Flag(kind="number", above=0, most=366 * 24 * 3600),
    "bucket": Flag(kind="bucket"),
    "job": Flag(kind="folder"),
    "checkpoint_steps": _integer(0),
    "keep_checkpoints": _integer(1),
    "keep_hours": Flag(kind="number", least=0, most=LARGEST),
    "wandb": _choice("off", "auto", "offline", "online"),
    "profile_steps": Flag(kind="steps"),
    "profile_port": _integer(0, 2**16 - 1),
    "peak_teraflops": Flag(kind="number", least=0, most=LARGEST),
}
FLAGS: Mapping[str, Mapping[str, Flag]] = MappingProxyType(
    {
        "digits": {**_EVERY, "data_dir": Flag(kind="digits"), "augment": _SWITCH},
        "imagenet": {
            **_EVERY,
            "data_dir": Flag(kind="images"),
            "arch": Flag(kind="model"),
            "fake_data": _SWITCH,
            "stream": _SWITCH,
            "cache_dir": _TEXT,
            "image_size": _integer(1),
            "num_classes": _integer(2, 1_000_000),
            "steps_per_epoch": _integer(1),
            "test_steps": _integer(1),
        },
    }
)
"""Recipe -> its flags, with `_` for `-`."""
ALIASES: Mapping[str, str] = MappingProxyType({"num_epochs": "epochs", "lr": "learning_rate", "model": "arch"})
"""Other names of flags, as other projects' scripts have them."""

Values = Mapping[str, str | int | float | bool]


def flag_problems(recipe: str, flags: Values, *, own_image: bool = False) -> Iterator[Problem]:
    """Return a problem for each flag that the trainer would refuse: unknown, given twice, or of a wrong value.

    Which models an image of the user's own has nobody here knows.
    """
    known, seen = FLAGS[recipe], dict[str, str]()
    for written, value in flags.items():
        name = _name(written, known)
        if name not in known:
            yield Problem("job.flags.unknown", ("flags", written), _unknown(recipe, written, known), value)
        elif name in seen:
            yield Problem(
                "job.flags.duplicate",
                ("flags", written),
                f"is the same flag as {seen[name]}; write one of the two",
                value,
            )
        elif own_image and known[name].kind == "model":
            pass
        elif wanted := _wrong(known[name], value):
            yield Problem("job.flags.wrong_value", ("flags", written), f"must be {wanted}", value)
        seen.setdefault(name, written)


def value_of(recipe: str, flags: Values, name: str) -> str | int | float | bool | None:
    """What a job gives a flag, under any of its names."""
    return next((value for written, value in flags.items() if _name(written, FLAGS[recipe]) == name), None)


def _name(written: str, known: Mapping[str, Flag]) -> str:
    name = written.replace("-", "_")
    return ALIASES[name] if ALIASES.get(name) in known else name


def _unknown(recipe: str, written: str, known: Mapping[str, Flag]) -> str:
    name = written.replace("-", "_")
    switch = name.removeprefix("no_")
    if switch != name and switch in known:
        return f"is no flag; write `{switch}: false`"
    others = [other for other, flags in FLAGS.items() if _name(name, flags) in flags]
    if others:
        return f"is a flag of recipe {others[0]}, and not of {recipe}; remove it"
    near = difflib.get_close_matches(name, (*known, *ALIASES), n=1, cutoff=0.8)
    near = near or [each for each in known if len(name) > 2 and each.startswith(name)]
    if near:
        return f"is no flag of recipe {recipe}; write {_name(near[0], known)}"
    return f"is no flag of recipe {recipe}; write one of {', '.join(known)}"


def _wrong(flag: Flag, value: str | int | float | bool) -> str:
    """What a value must be, where it is not so; a number may be in quotes, for YAML takes `1e-3` for a text."""
    if flag.kind == "switch":
        return "" if isinstance(value, bool) else f"{allowed(flag)}, without quotes"
    if isinstance(value, bool):
        return f"{allowed(flag)}, in quotes where it is a word that YAML takes for true or false"
    if flag.kind == "choice":
        return "" if value in flag.choices else allowed(flag)
    if flag.kind == "model":
        return "" if _model(str(value)) in models() else f"{allowed(flag)}{_near(_model(str(value)))}"
    if flag.kind in ("text", "bucket", "folder", "steps", "digits", "images"):
        return "" if _is_such_a_text(flag, str(value)) else allowed(flag)
    try:
        number = int(str(value)) if flag.kind == "integer" else float(value)
    except (OverflowError, ValueError):
        return allowed(flag)
    high = flag.most is None or number <= flag.most
    low = (flag.least is None or number >= flag.least) and (flag.above is None or number > flag.above)
    return "" if high and low and number < float("inf") else allowed(flag)


@functools.cache
def models() -> frozenset[str]:
    """The models that the trainer's image has, without the tags that timm gives their weights."""
    return frozenset(MODELS_FILE.read_text(encoding="ascii").split())


def _model(text: str) -> str:
    return text.removeprefix("timm/").partition(".")[0]


def _near(text: str) -> str:
    plain = re.sub(r"[^a-z0-9_]", "", text.lower())
    near = [plain] if plain in models() else difflib.get_close_matches(plain, sorted(models()), n=3)
    return f"; write {' or '.join(near)}" if near else ""


def _is_such_a_text(flag: Flag, text: str) -> bool:
    if _SIGNS.search(text):
        return False
    if flag.kind == "bucket":
        return not text or BUCKET.fullmatch(text) is not None
    if flag.kind == "digits":
        return bool(text) and "://" not in text
    if flag.kind == "images":
        return IMAGES.fullmatch(text) is not None
    if flag.kind == "folder":
        return _JOB.fullmatch(text) is not None and text.isprintable() and len(text.encode()) <= LONGEST_NAME
    if flag.kind == "steps" and text:
        steps = re.fullmatch(r"([0-9]{1,10})-([0-9]{1,10})", text)
        return steps is not None and 1 <= int(steps[1]) <= int(steps[2]) <= LARGEST
    return True


def allowed(flag: Flag) -> str:
    """What a flag takes, in words."""
    if flag.kind == "switch":
        return "true or false"
    if flag.kind == "choice":
        return f"one of {', '.join(flag.choices)}"
    words = {
        "text": "a text without control characters",
        "bucket": f"file:///FOLDER, gs://BUCKET/FOLDER or s3://BUCKET/FOLDER, {_OF_URLS}",
        "folder": f"one folder name of at most {LONGEST_NAME} bytes, without {_NO_NAME}",
        "digits": "a folder with the digits and no URL (by default those in the image)",
        "images": f"a folder, gs://BUCKET/FOLDER or s3://BUCKET/FOLDER, {_OF_URLS}",
        "steps": f"A-B with 1 <= A <= B <= {LARGEST}, such as 10-15",
        "model": "a classifier of torchvision or timm, such as resnet50",
    }
    if flag.kind in words:
        return words[flag.kind]
    sort = "an integer" if flag.kind == "integer" else "a number"
    if flag.above is not None:
        return f"{sort} above {flag.above:g}, at most {_plain(flag.most)}"
    return f"{sort} from {flag.least:g} to {_plain(flag.most)}"


def _plain(number: float | None) -> str:
    return f"{number:g}" if number and number > 1e15 else f"{number:.0f}"
