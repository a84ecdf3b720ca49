"""Texts: ranks predict each token once an epoch. Documents and rows give equal tokens. Invalid files are rejected."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow  # type: ignore[import-untyped]  # without type hints
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from tests.trainer.image_sets import ONLY_RANK, ReaderRank
from trainer.config import LanguageConfig
from trainer.data.datasets import NO_LABEL
from trainer.data.sampler import EpochSampler
from trainer.data.texts import Texts, TokenRow, Tokens, read_parts
from trainer.exit_codes import ConfigurationError, DataError
from trainer.language.sizes import SEPARATOR
from trainer.language.tokenizer import ByteTokenizer, FileTokenizer, learn_byte_pairs
from trainer.storage import Folder

DOCUMENTS = st.lists(st.binary(min_size=1, max_size=40), min_size=1, max_size=6)
Writer = Callable[[Path], object]


def tokens_of(documents: list[bytes]) -> list[int]:
    """Return the tokens of these documents, with a separator before each one and after the last one."""
    return [token for text in documents for token in (SEPARATOR, *text)] + [SEPARATOR]


def token_row(documents: list[bytes]) -> TokenRow:
    """Return a file's row of tokens with these documents."""
    return TokenRow(np.array(tokens_of(documents)[:-1], dtype=np.uint16), "row.npy")


@settings(deadline=None)  # the first example loads libraries
@given(DOCUMENTS, st.integers(1, 50), st.integers(1, 63))
def test_samples_predict_every_token_once(documents: list[bytes], context: int, row_bits: int) -> None:
    # A set bit makes a document a row.
    parts = [token_row([text]) if row_bits >> index & 1 else text for index, text in enumerate(documents)]
    tokens, expected = Tokens(parts, context, ByteTokenizer()), tokens_of(documents)
    assert tokens.num_bytes == sum(map(len, documents))
    samples = np.arange(tokens.num_samples)
    inputs, labels = tokens.batch(samples, tokens.num_samples + 1)
    known = labels != NO_LABEL
    assert labels[known].tolist() == expected[1:]
    assert inputs[known].tolist() == expected[:-1]
    assert not known[-1].any()
    assert tokens.targets(samples) == tokens.num_targets == len(expected) - 1
    assert sum(tokens.targets(samples[[number]]) for number in samples) == len(expected) - 1


ROW_DOCUMENTS = [b"Read from a row.", b"The row has two.", b"A row at the end."]
TABLE = ["A table's document.", "größer"]
LINES = [b"First.", "Größe".encode(), b"The second document, of one file."]
ALL_DOCUMENTS = [*LINES, *ROW_DOCUMENTS[:2], *(text.encode() for text in TABLE), ROW_DOCUMENTS[2]]
"""The documents of the fixture `folder`, in order."""


def texts(folder: Path, *, batch_size: int = 3, context: int = 8, tokenizer: str = "bytes") -> Texts:
    config = LanguageConfig(data_dir=str(folder), batch_size=batch_size, context=context, tokenizer=tokenizer)
    return Texts(config, ReaderRank())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the same texts for training and tests, in every format."""
    folder = tmp_path_factory.mktemp("texts")
    for split in ("train", "test"):
        (folder / split).mkdir()
        np.save(folder / split / "c.npy", token_row(ROW_DOCUMENTS[:2]).tokens)
        np.save(folder / split / "e.npy", token_row(ROW_DOCUMENTS[2:]).tokens.astype(np.uint32))
        parquet.write_table(pyarrow.table({"id": [1, 2], "text": TABLE}), folder / split / "d.parquet")
        (folder / split / "b.txt").write_text("The second document, of one file.", encoding="utf-8")
        lines = [json.dumps({"text": text}) for text in ("First.", "", "Größe")]
        (folder / split / "a.jsonl").write_text("\n".join(lines) + "\n\n", encoding="utf-8")
    return folder


def test_documents_and_rows_are_read_in_order(folder: Path) -> None:
    found = [
        part if isinstance(part, bytes) else part.tokens.tolist()
        for part in read_parts(Folder(str(folder)), "train", ReaderRank())
    ]
    rows = [token_row(documents).tokens.tolist() for documents in (ROW_DOCUMENTS[:2], ROW_DOCUMENTS[2:])]
    assert found == [*LINES, rows[0], *(text.encode() for text in TABLE), rows[1]]


def test_row_on_disk_is_mapped_into_memory(folder: Path) -> None:
    parts = read_parts(Folder(str(folder)), "train", ReaderRank())
    for row in [part for part in parts if isinstance(part, TokenRow)]:
        assert isinstance(row.tokens.base, np.memmap)


def test_row_in_bucket_equals_the_row_on_disk(folder: Path) -> None:
    disk = Folder(str(folder))
    on_disk = [part for part in read_parts(disk, "train", ReaderRank()) if isinstance(part, TokenRow)]
    # To the trainer, fsspec's in-memory filesystem is a bucket.
    remote = Folder(f"memory://{folder.name}")
    for path in (folder / "train").iterdir():
        remote.write(f"train/{path.name}", path.read_bytes())
    assert not remote.is_local
    in_memory = [part for part in read_parts(remote, "train", ReaderRank()) if isinstance(part, TokenRow)]
    assert [row.tokens.tolist() for row in in_memory] == [row.tokens.tolist() for row in on_disk]


@pytest.mark.parametrize("worlds", [[1], [2], [3, 1, 2], [5]], ids=str)
def test_epoch_predicts_every_token_once_over_changing_ranks(worlds: list[int], folder: Path) -> None:
    data = texts(folder)
    saved_state: dict[str, int] | None = None
    found: list[torch.Tensor] = []
    for number, world in enumerate(worlds):
        ranks = [EpochSampler(data.num_samples, rank=rank, world=world, batch_size=1, seed=3) for rank in range(world)]
        for sampler in ranks:
            if saved_state:
                sampler.load_state(saved_state)
        while ranks[0].steps_left and (number == len(worlds) - 1 or ranks[0].position < 2 * (number + 1)):
            batches = [data.batch(sampler.next(), world=world) for sampler in ranks]
            assert len({batch.inputs.shape for batch in batches}) == 1, "all ranks must have equal shapes"
            labels = torch.cat([batch.labels[batch.labels != NO_LABEL] for batch in batches])
            assert {batch.scale for batch in batches} == {world / len(labels)}
            found.append(labels)
        saved_state = ranks[0].state()
    assert sorted(torch.cat(found).tolist()) == sorted(tokens_of(ALL_DOCUMENTS)[1:])


def test_resumed_epoch_has_the_same_batches_of_documents_and_rows(folder: Path) -> None:
    whole, rest = [], []
    sampler = EpochSampler(texts(folder).num_samples, rank=0, world=1, batch_size=2, seed=3)
    data, saved_state = texts(folder), sampler.state()
    while sampler.steps_left:
        if sampler.position == 6:
            saved_state = sampler.state()
        whole.append(data.batch(sampler.next(), world=1))
    resumed, data = EpochSampler(data.num_samples, rank=0, world=1, batch_size=2, seed=3), texts(folder)
    resumed.load_state(saved_state)
    while resumed.steps_left:
        rest.append(data.batch(resumed.next(), world=1))
    assert len(rest) == len(whole) - 3
    for one, other in zip(whole[3:], rest, strict=True):
        assert one.inputs.equal(other.inputs)
        assert one.labels.equal(other.labels)


@pytest.mark.parametrize("world", [1, 2, 3, 7])
def test_ranks_evaluate_every_token_once_in_equally_many_batches(world: int, folder: Path) -> None:
    data = texts(folder, batch_size=2)
    parts = [list(data.test_batches(rank=rank, world=world)) for rank in range(world)]
    assert len({len(part) for part in parts}) == 1
    assert sum(int((labels != NO_LABEL).sum()) for part in parts for _, labels in part) == data.test_targets


@pytest.mark.parametrize("name", ["train/a.md", "train/a.txt", "other/a.txt"])
def test_folder_without_text_is_rejected(name: str, tmp_path: Path) -> None:
    (tmp_path / name).parent.mkdir()
    (tmp_path / name).write_text("" if name == "train/a.txt" else "text", encoding="utf-8")
    with pytest.raises(DataError, match="has no text of train; it must have train/"):
        texts(tmp_path)


@pytest.mark.parametrize(("context", "is_short"), [(7, False), (8, True)])
def test_training_texts_shorter_than_the_context_are_reported_once(
    context: int, is_short: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for split, text in (("train", b"\xffbytes"), ("test", b"b")):
        (tmp_path / split).mkdir()
        (tmp_path / split / "a.txt").write_bytes(text)
    texts(tmp_path, context=context)
    warning = f"warning: {tmp_path}/train has 7 tokens, fewer than the context of 8: the only sample is partly empty;"
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == is_short
    assert all(line.startswith(warning) for line in lines)


def test_bits_per_byte_do_not_depend_on_the_format(tmp_path: Path) -> None:
    documents = ["Größe und Maß. " * 9, "  Two spaces,\n a line.\t<|separator", "日本語"]
    text = learn_byte_pairs([document.encode() for document in documents], 290)
    (tmp_path / "tokenizer.json").write_text(text, encoding="utf-8")
    tokenizer = FileTokenizer(text, "tokenizer.json", ONLY_RANK)
    for split in ("train", "test"):
        for kind in ("plain", "rows"):
            (tmp_path / kind / split).mkdir(parents=True)
        rows = []
        for number, document in enumerate(documents):
            (tmp_path / "plain" / split / f"{number}.txt").write_bytes(document.encode())
            (tokens,) = tokenizer.encode([document.encode()])
            rows += [tokenizer.separator, *tokens]
        np.save(tmp_path / "rows" / split / "0.npy", np.array(rows, dtype=np.uint16))
    one, other = (texts(tmp_path / kind, tokenizer=f"{tmp_path}/tokenizer.json") for kind in ("plain", "rows"))
    assert one.test_bytes == other.test_bytes == sum(len(document.encode()) for document in documents)
    assert one.test_targets == other.test_targets
    assert one.bytes_per_token == other.bytes_per_token
    batches = [list(data.test_batches(rank=0, world=1)) for data in (one, other)]
    for (inputs, labels), (inputs_of_rows, labels_of_rows) in zip(*batches, strict=True):
        assert inputs.equal(inputs_of_rows)
        assert labels.equal(labels_of_rows)


def test_bytes_of_many_tokens_are_estimated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainer.data.texts.MAX_COUNTED_TOKENS", 500)
    rows = [token_row([b"nine byte" for _ in range(count)]) for count in (100, 300)]
    assert Tokens(rows, 8, ByteTokenizer()).num_bytes == pytest.approx(400 * 9, rel=0.01)


def test_learnt_tokens_with_rows_are_rejected(folder: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"tokenizer = 'bpe': must be bytes or a tokenizer\.json"):
        texts(folder, tokenizer="bpe")


def lines_writer(text: str) -> Writer:
    return lambda path: path.write_text(f'{{"text": "a"}}\n{text}\n', encoding="utf-8")


def row_writer(array: Any) -> Writer:
    return lambda path: np.save(path, array, allow_pickle=True)


def table_writer(**columns: list[object]) -> Writer:
    return lambda path: parquet.write_table(pyarrow.table(columns), path)


def write_cut_row(path: Path) -> None:
    np.save(path, np.arange(256, dtype=np.uint16))
    path.write_bytes(path.read_bytes()[:-1])


NO_ROW, NO_LINE = "is not a row of tokens", ", line 2: not a document; each line must be"
NO_TEXT = "not a document; each row must have a text"
INVALID_FILES: dict[str, tuple[str, Writer, str]] = {
    "empty row": ("a.npy", lambda path: path.write_bytes(b""), NO_ROW),
    "text as row": ("a.npy", lambda path: path.write_bytes(b"some text"), NO_ROW),
    "cut row": ("a.npy", write_cut_row, NO_ROW),
    "pickle": ("a.npy", row_writer(np.array([{}])), NO_ROW),
    "shape": ("a.npy", row_writer(np.zeros((2, 3), np.uint16)), "its shape is (2, 3), its type uint16"),
    "type": ("a.npy", row_writer(np.zeros(3, np.int64)), "its shape is (3,), its type int64"),
    "order": ("a.npy", row_writer(np.zeros(3, ">u2")), "its shape is (3,), its type >u2"),
    "token": ("a.npy", row_writer(np.array([256, 257], np.uint16)), "has token 257; must be 0 to 256"),
    "empty table": ("a.parquet", lambda path: path.write_bytes(b""), "cannot be read"),
    "text as table": ("a.parquet", lambda path: path.write_bytes(b"some text, not a table"), "cannot be read"),
    "column": ("a.parquet", table_writer(content=["text"]), "cannot be read"),
    "missing": ("a.parquet", table_writer(text=["text", None]), f"row 2: {NO_TEXT}"),
    "number": ("a.parquet", table_writer(text=[1]), f"row 1: {NO_TEXT}"),
    **{f"line {text}": ("a.jsonl", lines_writer(text), NO_LINE) for text in ("{}", "[]", '{"text": 3}', "{", '"text"')},
}
"""Name of a case -> name of a file, function that writes it, and a part of the error."""


@pytest.mark.parametrize("name", INVALID_FILES)
def test_file_that_does_not_hold_texts_is_rejected(name: str, tmp_path: Path) -> None:
    file, write, message = INVALID_FILES[name]
    for split in ("test", "train"):
        (tmp_path / split).mkdir()
    (tmp_path / "test" / "a.txt").write_text("text", encoding="utf-8")
    write(tmp_path / "train" / file)
    with pytest.raises(DataError) as caught:
        texts(tmp_path)
    assert f"{tmp_path}/train/{file}" in str(caught.value)
    assert message in str(caught.value)


def test_unknown_token_beyond_the_counted_tokens_is_rejected_in_its_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainer.data.texts.MAX_COUNTED_TOKENS", 50)
    tokens = Tokens([TokenRow(np.arange(1000, dtype=np.uint16), "row.npy")], 8, ByteTokenizer())
    tokens.batch(np.arange(20), 20)
    with pytest.raises(DataError, match=r"row\.npy has token 999; must be 0 to 256"):
        tokens.batch(np.arange(120, 125), 5)


def test_folder_with_only_a_row_without_tokens_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "train").mkdir()
    np.save(tmp_path / "train" / "a.npy", np.zeros(0, np.uint16))
    with pytest.raises(DataError, match="has no text of train"):
        texts(tmp_path)


def test_table_without_pyarrow_is_rejected(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(DataError, match=r"d\.parquet cannot be read without pyarrow.*`requirements`.*frameworks"):
        texts(folder)


def test_lengths_are_the_bytes_of_text_of_each_token() -> None:
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    tokenizer = Tokenizer(models.BPE(vocab={"▁größe": 0, "<0x0A>": 1, "a": 2}, merges=[], byte_fallback=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.add_special_tokens([AddedToken("<s>", special=True)])
    tokenizer.add_tokens([AddedToken("  ", special=False)])
    assert FileTokenizer(tokenizer.to_str(), "tokenizer.json", ONLY_RANK).lengths().tolist() == [8, 1, 1, 0, 2]
