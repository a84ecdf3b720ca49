"""`python -m trainer export`: write a checkpoint's model as Hugging Face's transformers reads it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict_loader import load

from trainer.checkpoints.checkpoint import CHECKPOINT_NAME, Tensors, root_cause
from trainer.checkpoints.state import MODEL
from trainer.checkpoints.tensor_files import MANIFEST, TensorFilesReader, destination, is_complete, read_manifest
from trainer.config import parse_settings
from trainer.exit_codes import DataError
from trainer.language.coder import TOKENIZER_FILE, byte_tokenizer
from trainer.language.decoder import DOWN, UP
from trainer.language.hugging_face import WEIGHTS_NAME, PublishedModel, published_name, write_model
from trainer.language.sizes import BYTES
from trainer.rules import invalid_setting
from trainer.storage import Folder, MissingFileError


@dataclass(frozen=True, kw_only=True)
class ExportConfig:
    """Write a checkpoint of the recipe language as Hugging Face's transformers reads it."""

    checkpoint: str
    """Folder or URL of a checkpoint, or of a job's checkpoints, of which the newest complete one is taken."""
    to: str
    """Folder or URL to write config.json, the weights and the tokenizer into."""
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    """Type of the written weights."""


def export(arguments: Sequence[str]) -> None:
    """Write the model of a checkpoint, weight by weight. Raises ConfigurationError, DataError or StorageError."""
    config = parse_settings(ExportConfig, "python -m trainer export", arguments)
    folder, target, dtype = find_checkpoint(config.checkpoint), Folder(config.to), getattr(torch, config.dtype)
    if any(map(WEIGHTS_NAME.fullmatch, target.names())):
        # These could be LoRA's fixed weights, or mix with the new ones.
        raise invalid_setting("to", config.to, "a folder without model*.safetensors", "give --to another one")
    try:
        manifest = read_manifest(folder)
    except (ValueError, MissingFileError) as error:
        raise DataError(f"checkpoint {folder.url} cannot be used: {error}; give --checkpoint another one") from None
    facts = manifest["facts"]["model"]
    if not facts:
        raise DataError(f"checkpoint {folder.url} is not of recipe language; give --checkpoint another one")
    if facts["tokenizer"] == BYTES:
        tokenizer = str(byte_tokenizer().to_str()).encode()
    else:
        tokenizer = Folder(folder.url.rpartition("/")[0]).read(TOKENIZER_FILE)
    shapes, read = saved_weights(folder, manifest)
    if facts["lora_base"]:
        shapes, read = merged_weights(PublishedModel(facts["lora_base"]), shapes, read, scale=facts["lora_scale"])
    described = {**facts["config"], "dtype": config.dtype, "torch_dtype": config.dtype}
    write_model(target, described, shapes, lambda names: {name: read(name).to(dtype) for name in names})
    target.write(TOKENIZER_FILE, tokenizer)
    ends = next(token["content"] for token in json.loads(tokenizer)["added_tokens"] if token["special"])
    described = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": ends, "eos_token": ends}
    target.write("tokenizer_config.json", json.dumps(described).encode())
    print(f"export checkpoint={folder.url} to={target.url} weights={len(shapes)}", flush=True)


def find_checkpoint(url: str) -> Folder:
    """Return a checkpoint's folder, or the newest complete one of a job's. Raises DataError if there is none."""
    folder = Folder(url)
    names = folder.names()
    if MANIFEST in names:
        return folder
    for name in sorted(filter(CHECKPOINT_NAME.fullmatch, names), reverse=True):
        if is_complete(folder.child(name)):
            return folder.child(name)
    raise DataError(
        f"checkpoint {url} has no complete checkpoint; give --checkpoint the folder checkpoints/JOB of a bucket"
    )


Shapes = dict[str, list[int]]
Read = Callable[[str], torch.Tensor]


def saved_weights(folder: Folder, manifest: dict[str, Any]) -> tuple[Shapes, Read]:
    """Return the shapes of a checkpoint's weights by published name, and a function that reads one."""
    reader = TensorFilesReader(folder, manifest)
    saved = {
        published_name(name.removeprefix(MODEL)): (name, tensor)
        for name, tensor in destination(manifest, device="meta").items()
        if name.startswith(MODEL)
    }

    def read(published: str) -> torch.Tensor:
        name, tensor = saved[published]
        tensors: Tensors = {name: torch.empty_like(tensor, device="cpu")}
        try:
            load(tensors, storage_reader=reader, no_dist=True)
        except CheckpointException as error:
            raise DataError(f"{folder.url}: {root_cause(error)}; give --checkpoint another one") from None
        return tensors[name]

    return {name: list(tensor.shape) for name, (_, tensor) in saved.items()}, read


def merged_weights(base: PublishedModel, adapters: Shapes, read: Read, *, scale: float) -> tuple[Shapes, Read]:
    """Return the same as `saved_weights` for a published model whose weights include the LoRA adapters."""

    def merged(name: str) -> torch.Tensor:
        weight = base.read(name, base.places[name].shape).float()
        layer = name.removesuffix("weight")
        if layer + UP in adapters:
            weight += scale * read(layer + UP) @ read(layer + DOWN)
        return weight

    return {name: place.shape for name, place in base.places.items()}, merged
