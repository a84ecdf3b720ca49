"""Settings of a training run and their rules: one frozen dataclass per recipe, parsed from the command line by tyro."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from typing import Annotated, Literal, get_args, get_type_hints

import tyro

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
_BUCKET_URL = (
    r"(gs://[a-z0-9]([-._a-z0-9]*[a-z0-9])?(/|$)|s3://[a-z0-9]([-.a-z0-9]*[a-z0-9])?(/|$))"
    r"[^?#\x00-\x1f\x7f]*(?<!\s)"
)
_FOLDER_URL = r"file:///[^/\s\x00-\x1f\x7f]([^\x00-\x1f\x7f]*\S)?"
_UNCHAINED = r"(?!.*::|.*[\ud800-\udfff])"
"""fsspec splits a URL at `::`, and a bucket cannot store a name that is not UTF-8."""
BUCKET_PATTERN = f"{_UNCHAINED}({_FOLDER_URL}|{_BUCKET_URL})"
IMAGES_PATTERN = f"{_UNCHAINED}((?![a-zA-Z][-+.a-zA-Z0-9]*:/).*|{_FOLDER_URL}|{_BUCKET_URL})"
"""A path, or the URL of a folder."""
JOB_PATTERN = r"(?![.\s])(?!.*::)[^/\\*?\[\]#%\x00-\x1f\x7f-\xa0\u2028\u2029\ud800-\udfff]+(?<!\s)"
"""A folder name for disks and buckets, without characters of URLs and patterns and without invisible ones."""

CHECKPOINTS, PROFILES = SHARED_FOLDERS = "checkpoints", "profiles"
"""Folders of the bucket that hold a subfolder for each job."""


def invalid_setting(key: str, value: object, allowed: str, remedy: str) -> ConfigurationError:
    """Return the error for an invalid value of a setting."""
    return ConfigurationError(f"{key} is {value!r}; allowed is {allowed}: {remedy}")


@dataclass(frozen=True)
class Range:
    """Bounds of a number. `workloads/trainer_flags.json` has them for the validation of stacks."""

    least: float = 0
    most: float = MAX_COUNT
    is_exclusive: bool = False
    """True if `least` itself is not allowed."""

    def check(self, key: str, value: float) -> None:
        """Reject a number outside these bounds, or one that is not a number."""
        if self.is_exclusive:
            is_allowed, allowed = self.least < value <= self.most, f"more than {self.least} and at most {self.most}"
        else:
            is_allowed, allowed = self.least <= value <= self.most, f"{self.least} to {self.most}"
        if not is_allowed:
            raise invalid_setting(key, value, allowed, f"give {_flag(key)} another value")


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


Count = Annotated[int, Range(1)]
NaturalNumber = Annotated[int, Range()]
Amount = Annotated[float, Range()]
Share = Annotated[float, Range(0, 1)]
Epochs = Annotated[int, Range(1), tyro.conf.arg(aliases=("--num-epochs",))]
LearningRate = Annotated[float, Range(0, MAX_FACTOR, is_exclusive=True), tyro.conf.arg(aliases=("--lr",))]
WeightDecay = Annotated[float, Range(0, MAX_FACTOR)]
BucketUrl = Annotated[
    str,
    Text(
        f"({BUCKET_PATTERN})?",
        "file:///FOLDER, gs://BUCKET/FOLDER or s3://BUCKET/FOLDER, BUCKET in small letters, without '::', '?' and '#'",
        "give --bucket such a URL, or leave it out",
    ),
]
FolderName = Annotated[
    str,
    Text(
        JOB_PATTERN,
        "one folder name of letters, digits, '-', '_' and the like, no '.' first and no blank at an end",
        r"give --job a name without any of /\*?[]#% and '::'",
        max_bytes=MAX_NAME_BYTES,
    ),
]
StepRange = Annotated[
    str,
    Text(
        "([0-9]{1,10}-[0-9]{1,10})?",
        f"A-B with 1 <= A <= B <= {MAX_COUNT}, such as 10-15",
        "give the first and the last step",
    ),
]
DigitsFolder = Annotated[
    str, Text(r"(?!.*://).+", "a folder with the digits, not a URL", "give --data-dir a folder on a disk")
]
ImagesFolder = Annotated[
    str,
    Text(
        IMAGES_PATTERN,
        "a folder, gs://BUCKET/FOLDER or s3://BUCKET/FOLDER, BUCKET in small letters, without '::', '?' and '#'",
        "give --data-dir such a folder",
    ),
]
ModelName = Annotated[
    str,
    Text(
        r"[a-z0-9_/]+(\.\S+)?",
        "a classifier of torchvision or timm, such as resnet50",
        "give --arch a name in small letters",
    ),
    tyro.conf.arg(aliases=("--model",)),
]


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """Settings of every recipe."""

    epochs: Epochs
    """Passes over the training set."""
    batch_size: Count
    """Samples per rank and step."""
    optimizer: Literal["adamw", "sgd"]
    """AdamW, or SGD with Nesterov momentum 0.9."""
    learning_rate: LearningRate
    """Highest learning rate, reached after the warm-up. From there it falls to zero along a cosine."""
    warmup: Share
    """Share of the run (0 to 1) in which the learning rate rises linearly from zero."""
    weight_decay: WeightDecay
    """Weight decay of the optimiser."""
    label_smoothing: Share
    """Share of a label's weight that is spread over all classes (0 to 1)."""
    log_steps: Count
    """Steps between two printed lines. The first step of a run is always printed."""
    amp: bool = False
    """Compute in 16 bits if the device is fast at it and autocast considers it safe. Weights keep 32 bits."""
    accumulate: Count = 1
    """Number of parts to split a rank's batch into, to use less memory.

    Gradients are averaged once, after the last part.
    """
    compile: bool = False
    """Compile the model with torch.compile. The start takes minutes longer, and steps of some models get faster."""
    channels_last: bool = True
    """Store images as height x width x channels, which makes convolutions faster."""
    seed: Annotated[int, Range(0, MAX_SEED)] = 0
    """Seed of the weights, the order of samples and the augmentation."""
    device: Literal["auto", "cpu", "cuda", "xla"] = "auto"
    """Device to compute on. auto takes XLA if $PJRT_DEVICE is set, else CUDA if this machine has it, else the CPU."""
    sharding: Literal["batch", "model"] = "batch"
    """Tensors that one program spreads over several XLA devices: the batch, or also the weights of the digits model."""
    threads: Annotated[int, Range(0, MAX_THREADS)] = 0
    """CPU threads of a rank. 0 takes OMP_NUM_THREADS, else this rank's share of the cgroup's CPUs."""
    process_group_timeout: Annotated[float, Range(0, MAX_TIMEOUT_SECONDS, is_exclusive=True)] = 300.0
    """Seconds without an answer after which a rank counts as hanging."""
    bucket: BucketUrl = field(default_factory=lambda: os.environ.get("TRAINYARD_BUCKET", ""))
    """URL of the storage for checkpoints and metrics (file:///...), by default $TRAINYARD_BUCKET.

    Empty saves nothing.
    """
    job: FolderName = field(default_factory=lambda: os.environ.get("TRAINYARD_JOB", "training"))
    """Name of the run's folder in the bucket, by default $TRAINYARD_JOB. A run resumes from the checkpoints in it."""
    checkpoint_steps: NaturalNumber = 0
    """Steps between two checkpoints. 0 saves only at the end of each epoch."""
    keep_checkpoints: Count = 3
    """Number of newest checkpoints to keep, regardless of age."""
    keep_hours: Amount = 0.0
    """Hours for which older checkpoints are kept too."""
    wandb: Literal["off", "auto", "offline", "online"] = "off"
    """Weights & Biases. auto is online if $WANDB_API_KEY is set, else offline: a folder for `wandb sync`."""
    profile_steps: StepRange = ""
    """Optimiser steps A-B to profile, such as 10-15, into a folder per rank in the bucket. Empty profiles nothing."""
    profile_port: Annotated[int, Range(0, MAX_PORT)] = 0
    """Port of the XLA profiler's server, such as 9012, which can take a profile at any time. 0 starts no server."""
    peak_teraflops: Amount = 0.0
    """Peak 10^12 operations a second of a rank's device, to compute MFU from. 0 takes the peak of a known GPU."""

    def __post_init__(self) -> None:
        check_settings(self)
        step_range(self.profile_steps)
        if self.job in SHARED_FOLDERS:
            allowed = f"a name other than {' and '.join(SHARED_FOLDERS)}"
            raise invalid_setting("job", self.job, allowed, "give --job another name")
        self._check_combinations()

    def _check_combinations(self) -> None:
        """Reject settings that are valid alone but not together."""
        if self.accumulate > self.batch_size:
            allowed = f"at most batch_size, {self.batch_size}"
            raise invalid_setting("accumulate", self.accumulate, allowed, "lower --accumulate, or raise --batch-size")
        if not self.bucket and self.profile_steps:
            remedy = "give --bucket too, or leave --profile-steps out"
            raise invalid_setting("profile_steps", self.profile_steps, "an empty value without a bucket", remedy)
        if not self.bucket and self.wandb in ("offline", "online"):
            remedy = "give --bucket too, or leave --wandb out"
            raise invalid_setting("wandb", self.wandb, "'off' or 'auto' without a bucket", remedy)


@dataclass(frozen=True, kw_only=True)
class DigitsConfig(TrainConfig):
    """A small convolutional network that learns handwritten digits."""

    data_dir: DigitsFolder = field(default_factory=lambda: os.environ.get("TRAINYARD_DATA", "/opt/trainyard/digits"))
    """Folder of the two IDX files of the digits, by default $TRAINYARD_DATA."""
    augment: bool = True
    """Shift, rotate and scale each training image a little."""
    epochs: Epochs = 8
    batch_size: Count = 64
    optimizer: Literal["adamw", "sgd"] = "adamw"
    learning_rate: LearningRate = 2e-3
    warmup: Share = 0.2
    weight_decay: WeightDecay = 0.01
    label_smoothing: Share = 0.05
    log_steps: Count = 20


@dataclass(frozen=True, kw_only=True)
class ImagenetConfig(TrainConfig):
    """An image classifier of torchvision or timm, trained on a folder of images or on generated images."""

    arch: ModelName = "resnet50"
    """Name of a model in torchvision, else in timm. timm/NAME takes timm's model if both have it."""
    fake_data: bool = True
    """Generate images and labels once on the device instead of reading a data set."""
    data_dir: ImagesFolder = field(default_factory=lambda: os.environ.get("TRAINYARD_DATA", ""))
    """Folder with train/ and val/ as in ImageNet or Tiny-ImageNet, or with WebDataset's train-*.tar and val-*.tar.
    It is on a disk, or at gs://... or s3://..., by default $TRAINYARD_DATA. Read with --no-fake-data."""
    stream: bool = False
    """Read each image when a step needs it, instead of decoding all images once into the cache."""
    cache_dir: str = ""
    """Folder on a disk of the host for the decoded images. Empty takes `trainyard-images` in the temporary folder.
    Later runs reuse it."""
    image_size: Count = 224
    """Height and width of an image, in pixels."""
    num_classes: Annotated[int, Range(2, MAX_CLASSES)] = 1000
    """Number of classes of generated images. Images in files have the classes of their folder."""
    steps_per_epoch: Count = 100
    """Training steps per epoch of generated images."""
    test_steps: Count = 10
    """Evaluation steps per epoch of generated images."""
    epochs: Epochs = 2
    batch_size: Count = 128
    optimizer: Literal["adamw", "sgd"] = "sgd"
    learning_rate: LearningRate = 0.1
    warmup: Share = 0.05
    weight_decay: WeightDecay = 1e-4
    label_smoothing: Share = 0.0
    log_steps: Count = 20

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.fake_data and not self.data_dir:
            raise invalid_setting("data_dir", "", "a folder of images", "give --data-dir, or leave --no-fake-data out")
        # The variable is set for every recipe, so its value does not show that the user wants a data set.
        given = "" if self.data_dir == os.environ.get("TRAINYARD_DATA") else self.data_dir
        for key, value in (("data_dir", given), ("stream", self.stream), ("cache_dir", self.cache_dir)):
            if self.fake_data and value:
                remedy = f"give --no-fake-data too, or leave --{key.replace('_', '-')} out"
                raise invalid_setting(key, value, "an empty value with generated images", remedy)


Config = (
    Annotated[DigitsConfig, tyro.conf.subcommand("digits")]
    | Annotated[ImagenetConfig, tyro.conf.subcommand("imagenet")]
)


RECIPES = {"digits": DigitsConfig, "imagenet": ImagenetConfig}


def rules(config: type) -> Mapping[str, Range | Text]:
    """Return the rule of each setting that has one."""
    hints = get_type_hints(config, include_extras=True)
    return {name: rule for name, hint in hints.items() for rule in get_args(hint) if isinstance(rule, Range | Text)}


def check_settings(settings: object) -> None:
    """Raise ConfigurationError for the first setting that breaks its rule."""
    for key, rule in rules(type(settings)).items():
        rule.check(key, getattr(settings, key))


def parse(arguments: Sequence[str]) -> DigitsConfig | ImagenetConfig:
    """Return the settings of a command line. Prints and exits for --help.

    Raises ConfigurationError with the flag, its value and the allowed values.
    """
    if arguments and not arguments[0].startswith("-") and arguments[0] not in RECIPES:
        raise invalid_setting("RECIPE", arguments[0], " or ".join(RECIPES), "write it first, before its flags")
    output = io.StringIO()
    try:
        with redirect_stderr(output), redirect_stdout(output):
            return tyro.cli(Config, prog="python -m trainer", args=list(arguments))
    except SystemExit as end:
        if not end.code:
            print(output.getvalue(), end="")
            raise
    raise ConfigurationError(_one_line(output.getvalue()))


def step_range(steps: str) -> tuple[int, int] | None:
    """Return the first and last step of `A-B`, or None if empty. Raises ConfigurationError if they are out of order."""
    if not steps:
        return None
    first, last = map(int, steps.split("-"))
    if not 1 <= first <= last <= MAX_COUNT:
        allowed = f"A-B with 1 <= A <= B <= {MAX_COUNT}"
        raise invalid_setting("profile_steps", steps, allowed, "give the first and the last step")
    return first, last


def recipe(config: TrainConfig) -> str:
    """Return the name of the recipe, as on the command line."""
    return type(config).__name__.removesuffix("Config").lower()


def _one_line(boxed: str) -> str:
    """Return tyro's error in one line. tyro prints a title, a rule, the error, a rule and then help."""
    sections: list[list[str]] = [[]]
    for line in filter(None, (line.strip("|+ ") for line in boxed.splitlines())):
        if set(line) == {"-"}:
            sections.append([])
        else:
            sections[-1].append(line)
    message = " ".join(sections[1] if len(sections) > 1 else sections[0])
    if len(sections) > 2 and sections[2][0].startswith("Perhaps you meant"):
        message += ". Perhaps you meant " + sections[2][1]
    return re.sub(r"^Error parsing \w+Config: ", "", message) + " (see --help)"
