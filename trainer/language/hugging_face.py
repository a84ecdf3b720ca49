"""Models in Hugging Face's format: describe a model, read its weights, and export a checkpoint to this format."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any, Literal, NamedTuple

import torch

from trainer.checkpoints.checkpoint import CHECKPOINT_NAME, Tensors, root_cause
from trainer.checkpoints.state import MODEL
from trainer.config import LanguageConfig, parse_settings
from trainer.distributed import local_part, own_part
from trainer.exit_codes import ConfigurationError, DataError
from trainer.language.decoder import DOWN, EPSILON, UP, Decoder, is_adapter, join_qkv, split_qkv
from trainer.language.sizes import BYTES, ROPE_RANGE, ROPE_TOKENS, SIZE_SETTINGS, Sizes
from trainer.language.tokenizer import TOKENIZER_FILE, TOKENIZER_FOLDER, byte_tokenizer_json
from trainer.rules import CHECKPOINTS, invalid_setting
from trainer.storage import Folder, MissingFileError

Shapes = dict[str, list[int]]
"""Name of a weight -> its shape."""
Read = Callable[[str], torch.Tensor]
"""Function that takes the name of a weight and returns the weight."""
CONFIG_FILE, INDEX_FILE = "config.json", "model.safetensors.index.json"
WEIGHTS_NAME = re.compile(r"model.*\.safetensors")
MAX_FILE_BYTES = 4 * 10**9
"""Maximum bytes of weights in a file, unless a single weight is larger."""
DTYPES = {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}
"""Types of weights by their name in a file."""
LAYER_NAMES = {"embedding": "model.embed_tokens", "norm": "model.norm", "head": "lm_head"}
BLOCK_LAYER_NAMES = {
    **{"attention_norm": "input_layernorm", "feed_forward_norm": "post_attention_layernorm"},
    "attention.out": "self_attn.o_proj",
    **{f"feed_forward.{name}": f"mlp.{name}_proj" for name in ("gate", "up", "down")},
}
FIXED_KEYS = ("model_type", "head_dim", "hidden_act", "rms_norm_eps", "attention_bias", "mlp_bias")
"""Keys of config.json that change the model's output and that no flag changes."""
COMPARED_KEYS = {
    **{"num_hidden_layers": "layers", "hidden_size": "width", "intermediate_size": "hidden"},
    **{"num_attention_heads": "heads", "num_key_value_heads": "kv_heads", "vocab_size": "vocabulary"},
    **{"tie_word_embeddings": "output (tied)", "rope_parameters": "rope_base and rope_factor"},
    **{key: key for key in FIXED_KEYS},
}
"""Key of config.json that changes the model's output -> its flag, or the key itself if it has no flag."""
LLAMA_DEFAULTS = {
    **{"hidden_act": "silu", "attention_bias": False, "mlp_bias": False, "rms_norm_eps": 1e-6},
    **{"tie_word_embeddings": False, "rope_theta": 10_000.0, "rope_scaling": {}, "rope_parameters": {}},
}
"""Default values of config.json:
https://huggingface.co/docs/transformers/model_doc/llama#transformers.LlamaConfig"""


def published_weights(name: str, weight: torch.Tensor, sizes: Sizes) -> dict[str, torch.Tensor]:
    """Return a weight of the trainer by its name in Hugging Face's format. For Attention.qkv, return its three parts.

    The name of a LoRA adapter begins with the name of its layer.
    """
    layer, _, kind = name.rpartition(".")
    if layer in LAYER_NAMES:
        return {f"{LAYER_NAMES[layer]}.{kind}": weight}
    _, number, layer = layer.split(".", 2)
    if layer != "attention.qkv":
        return {f"model.layers.{number}.{BLOCK_LAYER_NAMES[layer]}.{kind}": weight}
    parts = [weight] * 3 if kind == DOWN else split_qkv(weight, sizes)
    return {
        f"model.layers.{number}.self_attn.{each}_proj.{kind}": part for each, part in zip("qkv", parts, strict=True)
    }


def describe(config: LanguageConfig, *, separator: int) -> dict[str, Any]:
    """Return the content of config.json for this model."""
    sizes, rope = config.sizes, {"rope_type": "default", "rope_theta": config.rope_base}
    if config.rope_factor != 1:
        low, high = ROPE_RANGE
        rope |= {"rope_type": "llama3", "factor": config.rope_factor, "low_freq_factor": low, "high_freq_factor": high}
        rope["original_max_position_embeddings"] = ROPE_TOKENS
    return {
        **{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu"},
        **{"rms_norm_eps": EPSILON, "attention_bias": False, "mlp_bias": False},
        **{"bos_token_id": separator, "eos_token_id": separator},
        **{"num_hidden_layers": sizes.layers, "hidden_size": sizes.width, "intermediate_size": sizes.hidden},
        **{"num_attention_heads": sizes.heads, "num_key_value_heads": sizes.kv_heads, "head_dim": sizes.head_width},
        **{"vocab_size": config.vocabulary, "tie_word_embeddings": sizes.is_tied},
        "max_position_embeddings": config.context,
        # transformers 4 reads the first two keys, transformers 5 the last one.
        "rope_theta": config.rope_base,
        "rope_scaling": None if config.rope_factor == 1 else rope,
        "rope_parameters": rope,
    }


def comparable(config: dict[str, Any]) -> dict[str, Any]:
    """Return the values of a config.json that change the output of the model."""
    found: dict[str, Any] = LLAMA_DEFAULTS | {key: value for key, value in config.items() if value is not None}
    rope = (
        {"rope_type": "default", "rope_theta": found["rope_theta"]} | found["rope_scaling"] | found["rope_parameters"]
    )
    heads = found.get("num_attention_heads", 1)
    implied = {"num_key_value_heads": heads, "head_dim": found.get("hidden_size", 0) // heads}
    return {key: (implied | found | {"rope_parameters": rope}).get(key) for key in COMPARED_KEYS}


class Place(NamedTuple):
    """Place of a weight in its file."""

    file: str
    start: int
    shape: list[int]
    dtype: torch.dtype


class PublishedModel:
    """A folder with config.json and model*.safetensors."""

    def __init__(self, url: str) -> None:
        self.folder = Folder(url)
        try:
            self.config: dict[str, Any] = json.loads(self.folder.read(CONFIG_FILE))
        except (MissingFileError, ValueError) as error:
            raise self._error(f"{CONFIG_FILE}: {error}") from None
        self.places: dict[str, Place] = {}
        for name in filter(WEIGHTS_NAME.fullmatch, self.folder.names()):
            self.places.update(self._header(name))

    def _error(self, problem: str) -> DataError:
        return DataError(
            f"{self.folder.url} cannot be read as a model ({problem}); must be a folder with {CONFIG_FILE} and "
            "model*.safetensors of LlamaForCausalLM: set --init-from to one, or copy the folder again"
        )

    def _header(self, file: str) -> Iterator[tuple[str, Place]]:
        """Yield the name and place of each weight in a file: https://huggingface.co/docs/safetensors/index#format."""
        size = int.from_bytes(self.folder.read_part(file, 0, 8), "little")
        try:
            for name, found in json.loads(self.folder.read_part(file, 8, size)).items():
                if name != "__metadata__":
                    start, dtype = 8 + size + found["data_offsets"][0], DTYPES[found["dtype"]]
                    yield name, Place(file=file, start=start, shape=found["shape"], dtype=dtype)
        except (ValueError, KeyError, TypeError) as error:
            raise self._error(f"{file}: {type(error).__name__} {error}") from None

    def check(self, config: LanguageConfig) -> None:
        """Raise ConfigurationError if this is not the model that the settings describe."""
        own, found = comparable(describe(config, separator=0)), comparable(self.config)
        wrong = [key for key in own if own[key] != found[key]]
        if "hidden_size" in wrong or "num_attention_heads" in wrong:
            wrong = [key for key in wrong if key != "head_dim"]  # these two keys determine it
        place = f"{self.folder.url}/{CONFIG_FILE}"
        if fixed := [
            f"{key} = {found[key]}, but the trainer supports only {own[key]}" for key in wrong if key in FIXED_KEYS
        ]:
            raise ConfigurationError(f"{place} has {'; '.join(fixed)}; set --init-from to another model")
        if wrong:
            texts = [f"{COMPARED_KEYS[key]} = {own[key]}: must be {found[key]}" for key in wrong]
            raise ConfigurationError(
                f"{'; '.join(texts)}, as in {place}; change these settings, or set --init-from to another model"
            )

    def read(self, name: str, shape: list[int], rows: slice | None = None) -> torch.Tensor:
        """Return a weight, or some of its rows. Reads no other rows."""
        place = self.places.get(name)
        if place is None or place.shape != shape:
            found = f"has the shape {place.shape}, not {shape}" if place else "is missing"
            raise self._error(f"{name} {found}")
        first, last, _ = (rows or slice(None)).indices(shape[0])
        row_bytes = prod(shape[1:]) * place.dtype.itemsize
        size = (last - first) * row_bytes
        content = bytearray(self.folder.read_part(place.file, place.start + first * row_bytes, size) if size else b"")
        if len(content) != size:
            raise self._error(f"{place.file} is too short: {name} has {len(content)} of {size} bytes")
        if not size:
            return torch.empty((0, *shape[1:]), dtype=place.dtype)
        return torch.frombuffer(content, dtype=place.dtype).view(last - first, *shape[1:])

    @torch.no_grad()
    def load(self, model: Decoder, heartbeat: Callable[[], None]) -> None:
        """Copy the weights into a model. Each rank reads only the rows that it needs."""
        for name, weight in model.named_parameters():
            if not is_adapter(name) and local_part(weight).numel():
                rows, *others = own_part(weight)
                found = self.read_rows(name, torch.empty(weight.shape, device="meta"), model.sizes, rows)
                local_part(weight).copy_(found[(slice(None), *others)])
                heartbeat()

    def read_rows(self, name: str, like: torch.Tensor, sizes: Sizes, rows: slice) -> torch.Tensor:
        """Return some rows of the trainer's weight `name`, which has the shape of `like`."""
        parts = published_weights(name, like, sizes)
        if len(parts) == 1:
            return self.read(next(iter(parts)), list(like.shape), rows)
        size = len(like) // sizes.kv_heads
        first, last = rows.start // size, -(-rows.stop // size)
        found = []
        for each, part in parts.items():
            step = len(part) // sizes.kv_heads
            found.append(self.read(each, list(part.shape), slice(first * step, last * step)))
        return join_qkv(found, last - first)[rows.start - first * size : rows.stop - first * size]


def write_model(
    folder: Folder,
    config: dict[str, Any],
    shapes: dict[str, list[int]],
    read: Callable[[list[str]], dict[str, torch.Tensor]],
) -> None:
    """Write a model. `read` gets the names of the weights of one file, and returns these weights."""
    from safetensors.torch import save

    item_bytes = getattr(torch, config["dtype"]).itemsize
    files: list[list[str]] = []
    total = MAX_FILE_BYTES
    for name, shape in shapes.items():
        total += (size := prod(shape) * item_bytes)
        if total > MAX_FILE_BYTES or not files:
            files.append([])
            total = size
        files[-1].append(name)
    index = {}
    for number, names in enumerate(files, start=1):
        file = "model.safetensors" if len(files) == 1 else f"model-{number:05d}-of-{len(files):05d}.safetensors"
        folder.write(file, save(read(names), metadata={"format": "pt"}))
        index.update(dict.fromkeys(names, file))
    if len(files) > 1:
        size = sum(map(prod, shapes.values())) * item_bytes
        folder.write(INDEX_FILE, json.dumps({"metadata": {"total_size": size}, "weight_map": index}).encode())
    folder.write(CONFIG_FILE, json.dumps(config, indent=2).encode())


@dataclass(frozen=True, kw_only=True)
class ExportConfig:
    """Export a checkpoint of the recipe language to the format of Hugging Face's transformers."""

    checkpoint: str
    """Folder or URL of a checkpoint, or of a job's checkpoints. Of a job, export the newest complete checkpoint."""
    to: str
    """Folder or URL to write config.json, the weights and the tokenizer into."""
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    """Type of the written weights."""


def export(arguments: Sequence[str]) -> None:
    """Write the model of a checkpoint, file by file. Raises ConfigurationError, DataError or StorageError."""
    from trainer.checkpoints.tensor_files import read_manifest

    config = parse_settings(ExportConfig, "python -m trainer export", arguments)
    folder, target, dtype = find_checkpoint(config.checkpoint), Folder(config.to), getattr(torch, config.dtype)
    if any(map(WEIGHTS_NAME.fullmatch, target.names())):
        # Model files that exist in `target` may be the weights that LoRA keeps fixed. Others would mix with the export.
        raise invalid_setting("to", config.to, "a folder without model*.safetensors", "set --to to another folder")
    try:
        manifest = read_manifest(folder)
    except (ValueError, MissingFileError) as error:
        raise DataError(f"checkpoint {folder.url} cannot be used: {error}; export another checkpoint") from None
    facts = manifest["facts"]["model"]
    if not facts:
        raise DataError(f"checkpoint {folder.url} was not saved by recipe `language`; export another checkpoint")
    if facts["tokenizer"] == BYTES:
        tokenizer = byte_tokenizer_json().encode()
    else:
        place = re.sub(rf"(^|/){CHECKPOINTS}/([^/]+)/[^/]+$", rf"\1\2/{TOKENIZER_FOLDER}", folder.url)
        tokenizer = Folder(place).read(TOKENIZER_FILE)
    shapes, read = saved_weights(folder, manifest)
    if facts["lora_base"]:
        shapes, read = merged_weights(PublishedModel(facts["lora_base"]), shapes, read, scale=facts["lora_scale"])
    described = {**facts["config"], "dtype": config.dtype, "torch_dtype": config.dtype}
    write_model(target, described, shapes, lambda names: {name: read(name).to(dtype) for name in names})
    target.write(TOKENIZER_FILE, tokenizer)
    separator = next(token["content"] for token in json.loads(tokenizer)["added_tokens"] if token["special"])
    described = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": separator, "eos_token": separator}
    target.write("tokenizer_config.json", json.dumps(described).encode())
    print(f"export checkpoint={folder.url} to={target.url} weights={len(shapes)}", flush=True)


def find_checkpoint(url: str) -> Folder:
    """Return the folder of a checkpoint, or of the newest complete one of a job. Raises DataError if there is none."""
    from trainer.checkpoints.tensor_files import MANIFEST, is_complete

    folder = Folder(url)
    names = folder.names()
    if MANIFEST in names:
        return folder
    for name in sorted(filter(CHECKPOINT_NAME.fullmatch, names), reverse=True):
        if is_complete(folder.child(name)):
            return folder.child(name)
    raise DataError(f"{url} has no complete checkpoint; set --checkpoint to the folder checkpoints/JOB of a bucket")


def saved_weights(folder: Folder, manifest: dict[str, Any]) -> tuple[Shapes, Read]:
    """Return the shapes of a checkpoint's weights, and a function that reads one. Both use Hugging Face's names."""
    # Imported here because these modules take a second to load, and training does not use this function.
    from torch.distributed.checkpoint.api import CheckpointException
    from torch.distributed.checkpoint.state_dict_loader import load

    from trainer.checkpoints.tensor_files import TensorFilesReader, destination

    reader = TensorFilesReader(folder, manifest)
    described = manifest["facts"]["model"]["config"]
    sizes = Sizes(**{own: described[key] for key, own in COMPARED_KEYS.items() if own in SIZE_SETTINGS})
    whole, owners, shapes = destination(manifest, device="meta"), {}, {}
    for name in filter(lambda name: name.startswith(MODEL), whole):
        try:
            parts = published_weights(name.removeprefix(MODEL), whole[name], sizes)
        except KeyError:
            problem = f"{name} is not a weight of this trainer's model; export another checkpoint"
            raise DataError(f"checkpoint {folder.url} cannot be used: {problem}") from None
        owners.update(dict.fromkeys(parts, name))
        shapes.update({published: list(part.shape) for published, part in parts.items()})

    @lru_cache(maxsize=1)  # queries, keys and values are parts of one weight
    def load_whole(name: str) -> torch.Tensor:
        tensors: Tensors = {name: torch.empty_like(whole[name], device="cpu")}
        try:
            load(tensors, storage_reader=reader, no_dist=True)
        except CheckpointException as error:
            raise DataError(f"{folder.url}: {root_cause(error)}; export another checkpoint") from None
        return tensors[name]

    def read(published: str) -> torch.Tensor:
        name = owners[published]
        return published_weights(name.removeprefix(MODEL), load_whole(name), sizes)[published].clone()

    return shapes, read


def merged_weights(base: PublishedModel, adapters: Shapes, read: Read, *, scale: float) -> tuple[Shapes, Read]:
    """Return what `saved_weights` returns, for a published model with LoRA adapters added to its weights."""

    def merged(name: str) -> torch.Tensor:
        weight = base.read(name, base.places[name].shape).float()
        layer = name.removesuffix("weight")
        if layer + UP in adapters:
            weight += scale * read(layer + UP) @ read(layer + DOWN)
        return weight

    return {name: place.shape for name, place in base.places.items()}, merged
