"""Settings of a training run: one frozen dataclass per recipe, parsed from the command line by tyro."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, Union, cast

import tyro

from trainer import rules
from trainer.exit_codes import ConfigurationError
from trainer.language.sizes import MIN_VOCABULARY, ParallelismText, PresetName, Sizes, choose_sizes, parse_parallelism
from trainer.rules import invalid_setting


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """Settings of every recipe."""

    epochs: rules.Epochs
    """Passes over the training set."""
    batch_size: rules.Count
    """Samples per rank and step."""
    optimizer: Literal["adamw", "sgd"] = "adamw"
    """AdamW, or SGD with Nesterov momentum 0.9."""
    learning_rate: rules.LearningRate
    """Highest learning rate, reached after the warm-up."""
    warmup: rules.StepShare = 0.05
    """Share of the run (0 to 1), from its start, in which the learning rate rises linearly from zero."""
    schedule: Literal["cosine", "stable"] = "cosine"
    """Learning rate after the warm-up: cosine falls along a cosine, stable is constant until the decay begins."""
    decay: rules.StepShare = 0.2
    """Share of the run (0 to 1), up to its end, in which the learning rate of schedule stable falls linearly."""
    final_rate: rules.Share = 0.0
    """Learning rate at the end of the run, as a share of the highest one."""
    weight_decay: rules.WeightDecay
    """Weight decay of the optimizer."""
    log_steps: rules.Count = 20
    """Steps between two printed lines. The trainer always prints the first step of a run and the last of an epoch."""
    amp: bool = False
    """Compute in 16 bits where torch.autocast does, if that is fast on the device. Weights keep 32 bits."""
    accumulate: rules.Count = 1
    """Number of parts to split a rank's batch into, to use less memory.

    Gradients are averaged once, after the last part.
    """
    compile: bool = False
    """Compile the model with torch.compile. The start can take minutes longer. Steps of some models get faster."""
    seed: Annotated[int, rules.Range(0, rules.MAX_SEED)] = 0
    """Seed of the weights, the order of samples and the augmentation."""
    device: Literal["auto", "cpu", "cuda", "xla"] = "auto"
    """Device to compute on. auto uses XLA if $PJRT_DEVICE is set, else CUDA if this machine has it, else the CPU."""
    threads: Annotated[int, rules.Range(0, rules.MAX_THREADS)] = 0
    """CPU threads of a rank. 0 uses OMP_NUM_THREADS, else this rank's share of the cgroup's CPUs on device cpu, or
    torch's default on other devices."""
    process_group_timeout: Annotated[float, rules.Range(0, rules.MAX_TIMEOUT_SECONDS, is_exclusive=True)] = 300.0
    """Seconds without progress after which a rank counts as hanging: at least 300 until its first step, and 20 more
    during a save."""
    bucket: rules.BucketUrl = field(default_factory=lambda: os.environ.get("TRAINYARD_BUCKET", ""))
    """URL of the storage for checkpoints and metrics (file://, gs:// or s3://), by default $TRAINYARD_BUCKET.

    Empty saves nothing.
    """
    job: rules.FolderName = field(default_factory=lambda: os.environ.get("TRAINYARD_JOB", "training"))
    """Name of the run's folder in the bucket, by default $TRAINYARD_JOB. A run resumes from the job's checkpoints."""
    checkpoint_steps: rules.NaturalNumber = 0
    """Steps between two checkpoints. 0 saves only at the end of each epoch."""
    keep_checkpoints: rules.Count = 3
    """Number of newest checkpoints to keep, regardless of age."""
    keep_hours: rules.Amount = 0.0
    """Hours for which to keep older checkpoints too."""
    wandb: Literal["off", "auto", "offline", "online"] = "off"
    """Weights & Biases. auto is online if $WANDB_API_KEY is set, else offline, which writes a folder for `wandb
    sync`. Without a bucket, auto is off."""
    profile_steps: rules.StepRange = ""
    """Optimizer steps A-B to profile, such as 10-15, into a folder per rank in the bucket. Empty profiles nothing."""
    profile_port: Annotated[int, rules.Range(0, rules.MAX_PORT)] = 0
    """Port of the XLA profiler's server, such as 9012, for profiles at any time. 0 starts no server."""
    peak_teraflops: rules.Amount = 0.0
    """Peak of a rank's device in 10^12 operations a second, to compute the MFU. If one XLA program uses all devices of
    all hosts, give the sum of their peaks. 0 uses the GPU's peak from a table."""

    def __post_init__(self) -> None:
        rules.check_settings(self)
        step_range(self.profile_steps)
        if self.job in rules.SHARED_FOLDERS:
            allowed = f"a name other than {' and '.join(rules.SHARED_FOLDERS)}"
            raise invalid_setting("job", self.job, allowed, "give --job another name")
        if self.accumulate > self.batch_size:
            allowed = f"at most batch_size, {self.batch_size}"
            raise invalid_setting("accumulate", self.accumulate, allowed, "lower --accumulate, or raise --batch-size")
        needs_bucket = {"profile_steps": (("",), "an empty value"), "wandb": (("off", "auto"), "'off' or 'auto'")}
        for key, (without, allowed) in needs_bucket.items() if not self.bucket else ():
            if getattr(self, key) not in without:
                remedy = f"give --bucket too, or leave --{key.replace('_', '-')} out"
                raise invalid_setting(key, getattr(self, key), f"{allowed} without a bucket", remedy)


@dataclass(frozen=True, kw_only=True)
class ImageConfig(TrainConfig):
    """Settings of the recipes that classify images."""

    label_smoothing: rules.Share = 0.0
    """Label smoothing (0 to 1): share of the label's weight that is spread evenly over all classes."""
    channels_last: bool = True
    """Store images as height x width x channels, which makes convolutions faster."""
    sharding: Literal["batch", "model"] = "batch"
    """Tensors that one program divides among several XLA devices: the batch, or the batch and the weights (model)."""


@dataclass(frozen=True, kw_only=True)
class DigitsConfig(ImageConfig):
    """A small convolutional network that learns handwritten digits."""

    data_dir: rules.DigitsFolder = field(
        default_factory=lambda: os.environ.get("TRAINYARD_DATA", "/opt/trainyard/digits")
    )
    """Folder with the two IDX files of the digits, by default $TRAINYARD_DATA, else that of the image."""
    augment: bool = True
    """Shift, rotate and scale each training image a little."""
    epochs: rules.Epochs = 8
    batch_size: rules.Count = 64
    learning_rate: rules.LearningRate = 2e-3
    warmup: rules.StepShare = 0.2
    weight_decay: rules.WeightDecay = 0.01
    label_smoothing: rules.Share = 0.05


@dataclass(frozen=True, kw_only=True)
class ImagenetConfig(ImageConfig):
    """An image classifier of torchvision or timm, trained on a folder of images or on generated images."""

    arch: rules.ModelName = "resnet50"
    """Name of a model of torchvision or timm. If both have it, NAME is torchvision's and timm/NAME is timm's."""
    fake_data: bool = True
    """Generate a batch of images and labels once on the device, instead of reading a data set."""
    data_dir: rules.DataFolder = field(default_factory=lambda: os.environ.get("TRAINYARD_DATA", ""))
    """Folder with train/ and val/ as in ImageNet or Tiny-ImageNet, or with WebDataset's train-*.tar and val-*.tar.
    The folder is on a disk, or at gs://... or s3://..., by default $TRAINYARD_DATA. Used only with --no-fake-data."""
    stream: bool = False
    """Read and decode each image for the step that needs it, instead of decoding all images once into the cache."""
    cache_dir: str = ""
    """Folder on a disk of the host for the decoded images. Empty uses `trainyard-images` in the temporary folder.
    Later runs reuse the images."""
    image_size: rules.Count = 224
    """Height and width of an image, in pixels."""
    num_classes: Annotated[int, rules.Range(2, rules.MAX_CLASSES)] = 1000
    """Number of classes of generated images. The classes of a data set are its folders or labels."""
    steps_per_epoch: rules.Count = 100
    """Training steps per epoch of generated images."""
    test_steps: rules.Count = 10
    """Evaluation steps per epoch of generated images."""
    epochs: rules.Epochs = 2
    batch_size: rules.Count = 128
    optimizer: Literal["adamw", "sgd"] = "sgd"
    learning_rate: rules.LearningRate = 0.1
    weight_decay: rules.WeightDecay = 1e-4

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.fake_data and not self.data_dir:
            raise invalid_setting("data_dir", "", "a folder of images", "give --data-dir, or leave --no-fake-data out")
        # Trainyard sets the variable for every recipe, so its value does not show that the user wants a data set.
        given = "" if self.data_dir == os.environ.get("TRAINYARD_DATA") else self.data_dir
        for key, value in (("data_dir", given), ("stream", self.stream), ("cache_dir", self.cache_dir)):
            if self.fake_data and value:
                remedy = f"give --no-fake-data too, or leave --{key.replace('_', '-')} out"
                allowed = "False" if key == "stream" else "an empty value"
                raise invalid_setting(key, value, f"{allowed} with generated images", remedy)


@dataclass(frozen=True, kw_only=True)
class LanguageConfig(TrainConfig):
    """A decoder-only language model like Llama, trained on a folder of texts."""

    data_dir: rules.DataFolder = field(default_factory=lambda: os.environ.get("TRAINYARD_DATA", "/opt/trainyard/sotu"))
    """Folder with train/ and test/, which hold *.txt (one document), *.jsonl and *.parquet (one document per row, in
    `text`), and *.npy (a row of tokens). The folder is on a disk, or at gs://... or s3://..., by default
    $TRAINYARD_DATA."""
    preset: PresetName = "1m"
    """Sizes of the model, named by its approximate number of parameters."""
    layers: rules.NaturalNumber = 0
    """Number of blocks. 0 uses the preset's."""
    width: rules.NaturalNumber = 0
    """Width of the model (hidden size). 0 uses the preset's."""
    heads: rules.NaturalNumber = 0
    """Attention heads. 0 uses the preset's."""
    kv_heads: rules.NaturalNumber = 0
    """Heads of keys and values (grouped-query attention). 0 uses the preset's."""
    hidden: rules.NaturalNumber = 0
    """Width of the feed-forward layer (intermediate size). 0 uses the preset's."""
    output: Literal["preset", "tied", "untied"] = "preset"
    """Weights of the output layer: the embedding's (tied), or separate ones (untied)."""
    tokenizer: rules.TokenizerName = "bytes"
    """Tokens of the texts: bytes, byte pairs learnt from the training texts (bpe), or those of a tokenizer.json."""
    vocabulary: Annotated[int, rules.Range(MIN_VOCABULARY, rules.MAX_CLASSES)] = 320
    """Rows of the embedding: at least the tokenizer's tokens. Bytes and the document separator are 257 tokens."""
    rope_base: Annotated[float, rules.Range(1, rules.MAX_COUNT)] = 500_000.0
    """Base of the rotary embeddings (RoPE theta)."""
    rope_factor: Annotated[float, rules.Range(1, rules.MAX_COUNT)] = 1.0
    """Factor of Llama 3.1's RoPE scaling: 8 for Llama 3.1 and 3.3, 32 for Llama 3.2. 1 does not scale."""
    init_from: rules.DataFolder = ""
    """Folder with config.json and model*.safetensors of Hugging Face, on a disk or at gs://... or s3://..., to start
    from. The size flags must match that model. Empty starts from random weights."""
    lora_rank: rules.NaturalNumber = 0
    """Rank of LoRA's adapters, which are trained instead of the weights of --init-from. 0 trains the weights."""
    lora_alpha: rules.Amount = 16.0
    """LoRA's alpha: the output of the adapters is multiplied by alpha / rank."""
    context: rules.Count = 256
    """Tokens of a sample. Documents are packed into samples, and no token attends to another document."""
    parallelism: ParallelismText = ""
    """Sizes of the groups of ranks, such as shard=8,tensor=2. The weights are sharded across a shard group (FSDP), each
    matrix product is split across a tensor group, and data=N makes N copies. One size can be auto, by default data.
    If this is empty, every rank has all weights (DDP). On XLA each device is a rank, and tensor is 1."""
    activation_checkpointing: Literal["none", "selective", "full"] = "none"
    """Results of a block that the backward pass computes again, to use less memory: none of them, all except matrix
    products and attention (selective), or all (full)."""
    float8: Literal["none", "tensorwise", "rowwise"] = "none"
    """Scales of torchao's 8-bit matrix products in the blocks, on L4, H100 and newer GPUs: one for each matrix
    (tensorwise), one for each row (rowwise, slower and more exact), or none, for products in 16 bits."""
    clip_norm: rules.Amount = 1.0
    """Maximum norm of the gradient: a larger one is clipped. 0 does not clip."""
    z_loss: rules.Amount = 0.0
    """Factor of the z-loss, the squared logarithm of the softmax's denominator. It keeps logits small. 0 uses none."""
    evaluate_steps: rules.NaturalNumber = 0
    """Steps between two evaluations. 0 evaluates only at the end of each epoch."""
    sample_tokens: rules.NaturalNumber = 200
    """Tokens of the text that the model writes after each evaluation. 0 writes none."""
    prompt: str = "The "
    """Beginning of the text that the model writes."""
    temperature: rules.Amount = 0.8
    """Sampling temperature of the text that the model writes. 0 always writes the most likely token."""
    epochs: rules.Epochs = 1
    batch_size: rules.Count = 16
    learning_rate: rules.LearningRate = 3e-3
    final_rate: rules.Share = 0.1
    weight_decay: rules.WeightDecay = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        self.sizes, parse_parallelism(self.parallelism)  # both raise an error for invalid sizes
        if self.lora_rank and not self.init_from:
            remedy = "give --init-from too, or leave --lora-rank out"
            raise invalid_setting("lora_rank", self.lora_rank, "0 without weights to start from", remedy)
        for key, is_met, allowed in (
            ("amp", self.amp, "True"),
            ("lora_rank", not self.lora_rank, "0"),
            ("context", self.context % rules.FLOAT8_MULTIPLE == 0, f"a multiple of {rules.FLOAT8_MULTIPLE}"),
        ):
            if self.float8 != "none" and not is_met:
                remedy = f"change --{key.replace('_', '-')}, or leave --float8 out"
                raise invalid_setting(key, getattr(self, key), f"{allowed} with float8", remedy)

    @property
    def lora_scale(self) -> float:
        """Factor of the LoRA adapters' output."""
        return self.lora_alpha / max(1, self.lora_rank)

    @property
    def sizes(self) -> Sizes:
        """Sizes of the model."""
        return choose_sizes(self.preset, self.output, self)


RecipeConfig = DigitsConfig | ImagenetConfig | LanguageConfig
RECIPES: dict[str, type[RecipeConfig]] = dict(digits=DigitsConfig, imagenet=ImagenetConfig, language=LanguageConfig)


def parse(arguments: Sequence[str]) -> RecipeConfig:
    """Return the settings of a command line. Prints and exits for --help.

    Raises ConfigurationError for an unknown flag or an invalid value.
    """
    if arguments and not arguments[0].startswith("-") and arguments[0] not in RECIPES:
        raise invalid_setting(
            "RECIPE", arguments[0], " or ".join((*RECIPES, "export")), "write it first, before its flags"
        )
    kinds = (Annotated[kind, tyro.conf.subcommand(name)] for name, kind in RECIPES.items())
    return cast("RecipeConfig", parse_settings(Union[tuple(kinds)], "python -m trainer", arguments))  # noqa: UP007  # built at run time


def parse_settings(kind: Any, program: str, arguments: Sequence[str]) -> Any:
    """Return the settings of a command line as an object of this type. Prints and exits for --help."""
    output = io.StringIO()
    try:
        with redirect_stderr(output), redirect_stdout(output):
            return tyro.cli(kind, prog=program, args=list(arguments))
    except SystemExit as end:
        if not end.code:
            print(output.getvalue(), end="")
            raise
    raise ConfigurationError(_one_line(output.getvalue()))


def step_range(steps: str) -> tuple[int, int] | None:
    """Return the first and last step of `A-B`, or None if empty. Raises ConfigurationError if A or B is invalid."""
    if not steps:
        return None
    first, last = map(int, steps.split("-"))
    if not 1 <= first <= last <= rules.MAX_COUNT:
        allowed = f"A-B with 1 <= A <= B <= {rules.MAX_COUNT}"
        raise invalid_setting("profile_steps", steps, allowed, "give the first and the last step")
    return first, last


def _one_line(boxed: str) -> str:
    """Return tyro's error in one line. tyro prints a title, a line, the error, a line and then help."""
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
