"""Exported models: equal logits in transformers, and runs that start from these models, with and without adapters."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.trainer.image_sets import ONLY_RANK
from tests.trainer.language import (
    CONSTANT_RATE_FLAGS,
    FLAGS,
    MODEL,
    UNCHANGING_FLAGS,
    evaluations,
    losses,
    train,
    write_texts,
)
from tests.trainer.processes import RunResult, run
from tests.trainer.test_language import newest_tensors
from trainer.checkpoints.tensor_files import MANIFEST, decode_manifest, encode_manifest
from trainer.config import LanguageConfig
from trainer.exit_codes import BAD_CONFIGURATION, DATA_ERROR, DONE, STORAGE_ERROR, ConfigurationError, DataError
from trainer.language import hugging_face
from trainer.language.decoder import Decoder, adapt, initialize, is_adapter
from trainer.language.hugging_face import PublishedModel, describe, published_weights, write_model
from trainer.language.tokenizer import ByteTokenizer, FileTokenizer
from trainer.storage import Folder

TEXT = b"the people of these states shall have peace"
CONFIG: dict[str, Any] = {"layers": 2, "width": 64, "heads": 4, "kv_heads": 2, "hidden": 96, "context": 64}


def new_decoder(config: LanguageConfig) -> Decoder:
    """Return a decoder with random weights."""
    model = Decoder(
        config.sizes, vocabulary=config.vocabulary, rope_base=config.rope_base, rope_factor=config.rope_factor
    )
    initialize(model, seed=1)
    return model


def publish(model: Decoder, config: LanguageConfig, folder: Path) -> None:
    """Write a model in Hugging Face's format."""
    weights: dict[str, torch.Tensor] = {}
    for name, weight in model.named_parameters():
        weights |= published_weights(name, weight.detach(), config.sizes)
    shapes = {name: list(weight.shape) for name, weight in weights.items()}
    described = {**describe(config, separator=256), "dtype": "float32"}
    write_model(Folder(str(folder)), described, shapes, lambda names: {name: weights[name] for name in names})


def load_in_transformers(folder: Path) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)


@pytest.mark.parametrize(
    "values",
    [{}, {"output": "untied", "kv_heads": 4}, {"rope_factor": 8.0, "context": 4096}, {"rope_base": 10_000.0}],
    ids=["tied", "untied", "llama3", "base"],
)
def test_published_model_has_the_same_logits_in_transformers(values: dict[str, Any], tmp_path: Path) -> None:
    config = LanguageConfig(**CONFIG | values)
    model = new_decoder(config)
    publish(model, config, tmp_path)
    tokens = torch.randint(256, (2, min(config.context, 600)), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        expected, logits = model(tokens), load_in_transformers(tmp_path)(tokens).logits
    torch.testing.assert_close(logits, expected, rtol=1e-5, atol=1e-5)


def test_weights_loaded_from_several_files_equal_the_written_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hugging_face, "MAX_FILE_BYTES", 50_000)
    config = LanguageConfig(**CONFIG)
    model, other = new_decoder(config), new_decoder(config)
    publish(model, config, tmp_path)
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    files = sorted(path.name for path in tmp_path.glob("*.safetensors"))
    assert sorted(set(index["weight_map"].values())) == files
    assert len(files) > 3
    with torch.no_grad():
        for weight in other.parameters():
            weight.zero_()
    PublishedModel(str(tmp_path)).load(other, lambda: None)
    for (name, one), two in zip(model.named_parameters(), other.parameters(), strict=True):
        assert torch.equal(one, two), name
    tokens = torch.randint(256, (1, 20))
    torch.testing.assert_close(load_in_transformers(tmp_path)(tokens).logits, model(tokens), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("hidden_size", 128, "width = 64: must be 128, as in"),
        ("num_key_value_heads", 4, "kv_heads = 2: must be 4, as in"),
        ("tie_word_embeddings", False, "output (tied) = True: must be False"),
        ("rms_norm_eps", 1e-6, "has rms_norm_eps = 1e-06, but the trainer supports only 1e-05; set --init-from"),
        ("model_type", "mistral", "has model_type = mistral, but the trainer supports only llama; set --init-from"),
        ("rope_parameters", {"rope_type": "yarn", "rope_theta": 5e5}, "rope_base and rope_factor = "),
    ],
)
def test_model_with_another_configuration_is_rejected(key: str, value: Any, message: str, tmp_path: Path) -> None:
    config = LanguageConfig(**CONFIG)
    publish(new_decoder(config), config, tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {key: value}))
    with pytest.raises(ConfigurationError) as caught:
        PublishedModel(str(tmp_path)).check(config)
    assert message in str(caught.value)
    assert f"{tmp_path}/config.json" in str(caught.value)


def test_published_configuration_of_llama_3_is_accepted(tmp_path: Path) -> None:
    # Llama 3.2 1B's configuration, as transformers 4.45 wrote it.
    scaling = {"factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0, "rope_type": "llama3"}
    content = {
        **{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "head_dim": 64},
        **{"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16, "num_attention_heads": 32},
        **{"num_key_value_heads": 8, "rms_norm_eps": 1e-05, "rope_theta": 500000.0, "vocab_size": 128256},
        **{"attention_bias": False, "mlp_bias": False, "tie_word_embeddings": True},
        "rope_scaling": {**scaling, "original_max_position_embeddings": 8192},
    }
    (tmp_path / "config.json").write_text(json.dumps(content))
    PublishedModel(str(tmp_path)).check(LanguageConfig(preset="1b", vocabulary=128256, rope_factor=32.0))
    with pytest.raises(ConfigurationError, match="rope_base and rope_factor"):
        PublishedModel(str(tmp_path)).check(LanguageConfig(preset="1b", vocabulary=128256))


@pytest.mark.parametrize("damage", ["short", "header", "missing", "shape"])
def test_damaged_weights_are_data_errors(damage: str, tmp_path: Path) -> None:
    config = LanguageConfig(**CONFIG)
    publish(new_decoder(config), config, tmp_path)
    file = tmp_path / "model.safetensors"
    content = file.read_bytes()
    changes = {
        "short": content[:-1000],
        "header": content[:8] + b"!" + content[9:],
        "missing": content.replace(b"model.norm.weight", b"model.gorm.weight"),
        "shape": content.replace(b"[320,64]", b"[64,320]"),
    }
    assert changes[damage] != content
    file.write_bytes(changes[damage])
    with pytest.raises(DataError, match=f"{tmp_path} cannot be read as a model"):
        PublishedModel(str(tmp_path)).load(new_decoder(config), lambda: None)


@pytest.mark.parametrize("rows", [slice(0, 128), slice(5, 64), slice(31, 97), slice(127, 128)], ids=str)
def test_rows_of_attention_are_read_from_three_published_weights(rows: slice, tmp_path: Path) -> None:
    config, name = LanguageConfig(**CONFIG), "blocks.1.attention.qkv.weight"
    model = new_decoder(config)
    publish(model, config, tmp_path)
    weight = model.get_parameter(name)
    assert len(weight) == 128
    found = PublishedModel(str(tmp_path)).read_rows(name, weight, config.sizes, rows)
    assert torch.equal(found, weight[rows])


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_texts(tmp_path_factory.mktemp("texts"), steps=12)


@pytest.fixture(scope="module")
def trained(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the bucket of a run whose weights are sharded across two ranks."""
    bucket = tmp_path_factory.mktemp("trained")
    train(data, bucket, "--parallelism=shard=2", ranks=2, batches=2)
    return bucket


def export(bucket: Path, to: Path, *flags: str, code: int = DONE) -> RunResult:
    words = (f"--checkpoint={bucket}/checkpoints/training", f"--to={to}", *flags)
    return run(*words, recipe="export", data=bucket, code=code)


@pytest.fixture(scope="module")
def exported(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("exported")
    export(trained, folder)
    return folder


def test_run_from_exported_model_has_the_same_test_loss(
    trained: Path, exported: Path, data: Path, tmp_path: Path
) -> None:
    train(data, tmp_path, f"--init-from={exported}", *UNCHANGING_FLAGS)
    assert evaluations(tmp_path) == pytest.approx(evaluations(trained), rel=1e-6)
    train(
        data,
        tmp_path / "shards",
        f"--init-from={exported}",
        *UNCHANGING_FLAGS,
        "--parallelism=shard=2,tensor=2",
        ranks=4,
        batches=2,
    )
    assert evaluations(tmp_path / "shards") == pytest.approx(evaluations(trained), rel=1e-5)


def test_export_of_a_run_on_bytes_has_the_byte_tokenizer(exported: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(exported)
    (expected,) = ByteTokenizer().encode([TEXT])
    assert tokenizer(TEXT.decode()).input_ids == expected.tolist()
    config = json.loads((exported / "config.json").read_text())
    assert tokenizer.bos_token_id == ByteTokenizer.separator == config["bos_token_id"]


def test_export_has_the_tokenizer_file_of_the_run_and_fails_without_it(data: Path, tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    kept = Path("training", "tokenizer", "tokenizer.json")
    for kind, tokenizer in (("bpe", "bpe"), ("file", f"{tmp_path / 'bpe' / kept}")):
        train(data, tmp_path / kind, f"--tokenizer={tokenizer}", "--vocabulary=300")
        export(tmp_path / kind, tmp_path / kind / "model")
        (expected,) = FileTokenizer((tmp_path / "bpe" / kept).read_text(), "", ONLY_RANK).encode([TEXT])
        found = AutoTokenizer.from_pretrained(tmp_path / kind / "model")
        assert found(TEXT.decode()).input_ids == expected.tolist()
        assert found.decode(expected.tolist()) == TEXT.decode()
    (copied,) = (tmp_path / "file" / "checkpoints" / "training").glob("step-*")
    copy = shutil.copytree(copied, tmp_path / "copies" / copied.name)
    (tmp_path / "file" / kept).rename(copy / "tokenizer.json")
    run(f"--checkpoint={copy}", f"--to={tmp_path}/from-copy", recipe="export", data=data)
    assert (tmp_path / "from-copy" / "tokenizer.json").read_text() == (tmp_path / "bpe" / kept).read_text()
    result = export(tmp_path / "file", tmp_path / "other", code=STORAGE_ERROR)
    assert f"{kept} cannot be read" in result.output
    assert not (tmp_path / "other").exists()


def test_export_over_another_model_is_rejected(trained: Path, exported: Path) -> None:
    before = (exported / "model.safetensors").read_bytes()
    result = export(trained, exported, "--dtype=bfloat16", code=BAD_CONFIGURATION)
    assert f"to = '{exported}': must be a folder without model*.safetensors" in result.output
    assert (exported / "model.safetensors").read_bytes() == before


def test_invalid_flag_of_export_is_rejected() -> None:
    with pytest.raises(ConfigurationError, match="--dtype"):
        hugging_face.export(["--checkpoint=/run", "--to=/model", "--dtype=int8"])


def test_exported_model_generates_text_in_transformers(exported: Path) -> None:
    tokens = torch.tensor([[256, *TEXT]])
    model = load_in_transformers(exported)
    written = model.generate(tokens, max_new_tokens=5, do_sample=False)
    assert written.shape[1] == tokens.shape[1] + 5
    for position in range(tokens.shape[1], written.shape[1]):
        assert written[0, position] == model(written[:, :position]).logits[0, -1].argmax()


def test_export_in_16_bits_halves_the_file(trained: Path, exported: Path, tmp_path: Path) -> None:
    export(trained, tmp_path, "--dtype=bfloat16")
    sizes = [(folder / "model.safetensors").stat().st_size for folder in (tmp_path, exported)]
    assert 0.49 < sizes[0] / sizes[1] < 0.51
    assert json.loads((tmp_path / "config.json").read_text())["dtype"] == "bfloat16"


@pytest.mark.parametrize(("groups", "batches"), [("shard=2", 2), ("tensor=2", 1)])
def test_adapters_are_trained_saved_and_merged(
    groups: str, batches: int, exported: Path, data: Path, tmp_path: Path
) -> None:
    flags = (f"--init-from={exported}", "--lora-rank=4", "--lora-alpha=8", "--learning-rate=1e-2", "--warmup=0")
    train(data, tmp_path / "one", *flags)
    train(data, tmp_path / "shards", *flags, f"--parallelism={groups}", ranks=2, batches=batches)
    found = losses(tmp_path / "one", 1)
    assert losses(tmp_path / "shards", 2) == pytest.approx(found, rel=1e-4)
    assert found[-1] < 0.99 * found[0]
    # The checkpoint has only adapters: two for each of five layers in two blocks.
    adapters = {
        name: weight for name, weight in newest_tensors(tmp_path / "shards").items() if name.startswith("model.")
    }
    assert len(adapters) == 2 * 5 * 2
    assert all(is_adapter(name) for name in adapters)
    # A run that starts from the merged weights has the same test loss.
    export(tmp_path / "shards", tmp_path / "merged")
    train(data, tmp_path / "again", f"--init-from={tmp_path / 'merged'}", *UNCHANGING_FLAGS)
    assert evaluations(tmp_path / "again") == pytest.approx(evaluations(tmp_path / "shards"), rel=1e-5)
    # The original weights with the adapters have the logits of the merged weights.
    model = new_decoder(LanguageConfig(**CONFIG))
    adapt(model, rank=4, scale=8 / 4)
    PublishedModel(str(exported)).load(model, lambda: None)
    model.load_state_dict({name.removeprefix("model."): weight for name, weight in adapters.items()}, strict=False)
    tokens = torch.randint(256, (2, 20), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        expected, logits = model(tokens), load_in_transformers(tmp_path / "merged")(tokens).logits
    torch.testing.assert_close(logits, expected, rtol=1e-5, atol=1e-5)


def test_adapters_resume_exactly_and_only_with_the_same_init_from(exported: Path, data: Path, tmp_path: Path) -> None:
    flags = (f"--init-from={exported}", "--lora-rank=4", *CONSTANT_RATE_FLAGS)
    train(data, tmp_path / "parts", *flags)
    result = train(data, tmp_path / "parts", *flags, "--epochs=2")
    assert len(result.events("resume")) == 1
    train(data, tmp_path / "whole", *flags, "--epochs=2")
    assert evaluations(tmp_path / "parts") == evaluations(tmp_path / "whole")
    # The trainer knows the original weights by their --init-from, so it rejects even a copy in another folder.
    shutil.copytree(exported, tmp_path / "other")
    words = (*FLAGS, *flags, "--epochs=3", f"--bucket=file://{tmp_path}/parts", f"--init-from={tmp_path}/other")
    result = run(*words, recipe="language", data=data, code=DATA_ERROR)
    assert f"{exported}/adamw" in result.output


@pytest.mark.parametrize(
    ("flags", "code", "message"),
    [
        (("--lora-rank=4",), BAD_CONFIGURATION, "lora_rank = 4: must be 0 without weights"),
        (("--init-from={tmp}",), DATA_ERROR, "cannot be read as a model (config.json"),
        (("--init-from={exported}", "--width=128"), BAD_CONFIGURATION, "width = 128: must be 64, as in"),
    ],
    ids=["none", "not a model", "other sizes"],
)
def test_unusable_initial_weights_are_rejected(
    flags: tuple[str, ...], code: int, message: str, exported: Path, data: Path, tmp_path: Path
) -> None:
    given = [flag.format(tmp=tmp_path, exported=exported) for flag in flags]
    result = run(*FLAGS, *given, recipe="language", data=data, code=code)
    assert message in result.output
    assert "Traceback" not in result.output


@pytest.mark.parametrize("state", ["empty", "digits", "damaged", "layout"])
def test_checkpoint_that_cannot_be_exported_is_rejected(state: str, data: Path, digits: Path, tmp_path: Path) -> None:
    if state == "digits":
        run("--epochs=1", f"--bucket=file://{tmp_path}", "--batch-size=200", recipe="digits", data=digits)
    if state == "damaged":
        train(data, tmp_path, *MODEL)
        (file,) = (tmp_path / "checkpoints").rglob("*.tensors")
        content = bytearray(file.read_bytes())
        content[100] ^= 1
        file.write_bytes(content)
    if state == "layout":
        train(data, tmp_path, *MODEL)
        (file,) = (tmp_path / "checkpoints").rglob(MANIFEST)
        manifest = decode_manifest(file.read_bytes())
        names = {name.replace("attention.qkv", "attention.key"): found for name, found in manifest["tensors"].items()}
        file.write_bytes(encode_manifest({**manifest, "tensors": names}))
    result = export(tmp_path, tmp_path / "model", code=DATA_ERROR)
    messages = {
        "empty": "has no complete checkpoint",
        "digits": "was not saved by recipe `language`",
        "layout": "attention.key.weight is not a weight of this trainer's model; export another checkpoint",
        "damaged": "is wrong; export another checkpoint",
    }
    assert messages[state] in result.output
    assert "Traceback" not in result.output
