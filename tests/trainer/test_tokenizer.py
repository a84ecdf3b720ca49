"""Tokenizers: learnt byte pairs, files, and the tokenizer that a run keeps for its resumes."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Sequence
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.trainer.image_sets import ONLY_RANK, ReaderRank
from tests.trainer.language import CONSTANT_RATE_FLAGS, WORDS, evaluations, train, write_texts
from tests.trainer.processes import metrics
from trainer.config import LanguageConfig
from trainer.exit_codes import ConfigurationError, DataError
from trainer.language import tokenizer
from trainer.language.sizes import SEPARATOR
from trainer.language.tokenizer import (
    SEPARATOR_TEXT,
    WHOLE,
    ByteTokenizer,
    FileTokenizer,
    byte_tokenizer_json,
    learn_byte_pairs,
    load_tokenizer,
)

TEXT = " ".join(WORDS * 50).encode()
PARTS = ("\n", "\n\n", "\r\n", " ", "\u2003", "\x1f", "peace", "'s", "né", "。", "3", "...", SEPARATOR_TEXT)
"""Parts of a text. They include each part that learnt tokens treat differently at the end of a line."""
LINES = "".join(random.Random(0).choices(PARTS, k=40_000)).encode()
# Exclude the text of the separator, because a tokenizer.json encodes it as one token.
TEXTS = st.text(max_size=30).filter(lambda text: SEPARATOR_TEXT not in text)


def file_tokenizer(text: str) -> FileTokenizer:
    return FileTokenizer(text, "tokenizer.json", ONLY_RANK)


@pytest.fixture(scope="module")
def learnt() -> FileTokenizer:
    """Return a tokenizer of byte pairs that are learnt from TEXT."""
    return file_tokenizer(learn_byte_pairs([TEXT], 300))


@given(TEXTS)
def test_decode_of_learnt_tokens_returns_the_text(learnt: FileTokenizer, text: str) -> None:
    (tokens,) = learnt.encode([text.encode()])
    assert learnt.decode(tokens.tolist()) == text


def test_learnt_tokens_are_less_than_half_as_many_as_bytes(learnt: FileTokenizer) -> None:
    (tokens,) = learnt.encode([TEXT])
    assert len(tokens) < len(TEXT) / 2
    assert learnt.size <= 300
    assert learnt.separator not in tokens


def test_long_documents_have_the_same_tokens_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    one_line = LINES.replace(b"\n", b" ")
    windows = LINES.replace(b"\n", b"\r\n")
    documents = [LINES, b"", TEXT, b"\n" * 9000, b"\xff" + LINES[:9000], one_line, windows]
    assert all(len(tokenizer.PIECE.findall(text.decode())) > len(LINES) / 10_000 for text in (one_line, windows))
    heartbeats: list[int] = []
    runtime = ReaderRank()
    runtime.heartbeat = lambda: heartbeats.append(1)
    monkeypatch.setattr(tokenizer, "BATCH", 4)
    parts = list(load_tokenizer(LanguageConfig(tokenizer="bpe", vocabulary=400), runtime, documents).encode(documents))
    assert len(heartbeats) > len(LINES) / 40_000, "each batch counts as progress"
    whole = list(file_tokenizer(learn_byte_pairs(documents, 400)).encode(documents))
    assert len(parts) == len(documents)
    assert all(map(np.array_equal, parts, whole))


def test_byte_pairs_of_long_documents_are_learnt_from_the_first_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenizer, "MAX_LEARNT_BYTES", 30_000)
    found = learn_byte_pairs([LINES[:20_000], LINES[20_000:], TEXT], 400)
    monkeypatch.setattr(tokenizer, "PIECE", WHOLE)
    assert found == learn_byte_pairs([LINES[:20_000], LINES[20_000:30_000]], 400)


class SlowLibrary:
    """A rank whose library works until the rank records a heartbeat."""

    def __init__(self) -> None:
        self.runtime, self._heartbeat = ReaderRank(), Event()
        self.runtime.heartbeat = self._heartbeat.set

    def wait(self) -> None:
        self._heartbeat.clear()
        assert self._heartbeat.wait(30), "no heartbeat"


def test_rank_records_heartbeats_while_it_learns_byte_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = SlowLibrary()

    def learn(documents: Sequence[bytes], size: int) -> str:
        slow.wait()
        return learn_byte_pairs(documents, size)

    monkeypatch.setattr(tokenizer, "learn_byte_pairs", learn)
    found = load_tokenizer(LanguageConfig(tokenizer="bpe", vocabulary=300), slow.runtime, [TEXT])
    assert found.size <= 300


def test_rank_records_heartbeats_while_it_encodes_a_document(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = SlowLibrary()

    def encode(texts: list[str], **_settings: Any) -> list[SimpleNamespace]:
        slow.wait()
        return [SimpleNamespace(ids=[1])] * len(texts)

    found = FileTokenizer(learn_byte_pairs([TEXT], 300), "", slow.runtime)
    monkeypatch.setattr(found, "_tokenizer", SimpleNamespace(encode_batch_fast=encode))
    assert [row.tolist() for row in found.encode([TEXT])] == [[1]]


@given(TEXTS)
def test_byte_tokenizer_file_gives_the_tokens_of_byte_tokenizer(text: str) -> None:
    written = file_tokenizer(byte_tokenizer_json())
    assert (written.size, written.separator) == (ByteTokenizer.size, SEPARATOR)
    (tokens,), (expected,) = written.encode([text.encode()]), ByteTokenizer().encode([text.encode()])
    assert tokens.tolist() == expected.tolist()
    assert written.decode(tokens.tolist()) == text


def test_tokenizer_file_encodes_the_text_of_its_separator_as_the_separator(learnt: FileTokenizer) -> None:
    (tokens,) = learnt.encode([SEPARATOR_TEXT.encode()])
    assert tokens.tolist() == [learnt.separator]


def test_tokens_beyond_the_vocabulary_are_rejected(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(learn_byte_pairs([TEXT], 300))
    config = LanguageConfig(tokenizer=f"{tmp_path}/tokenizer.json", vocabulary=280)
    with pytest.raises(ConfigurationError, match=r"vocabulary = 280: must be at least \d+"):
        load_tokenizer(config, ReaderRank(), [])


def test_run_keeps_a_copy_of_its_tokenizer_and_rejects_another_tokenizer(tmp_path: Path) -> None:
    file = tmp_path / "tokenizer.json"
    file.write_text(learn_byte_pairs([TEXT], 300))
    config = LanguageConfig(tokenizer=str(file), bucket=f"file://{tmp_path}")
    load_tokenizer(config, ReaderRank(), [])
    kept = tmp_path / "training" / "tokenizer" / "tokenizer.json"
    assert kept.read_text() == file.read_text()
    load_tokenizer(config, ReaderRank(), [])
    file.write_text(learn_byte_pairs([TEXT], 280))
    with pytest.raises(ConfigurationError) as caught:
        load_tokenizer(config, ReaderRank(), [])
    assert str(kept) in str(caught.value)


def test_broken_tokenizer_is_not_kept(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    config = LanguageConfig(tokenizer=f"{tmp_path}/tokenizer.json", bucket=f"file://{tmp_path}")
    with pytest.raises(DataError):
        load_tokenizer(config, ReaderRank(), [])
    assert not (tmp_path / "training").exists()


def test_size_of_tokenizer_with_gaps_in_its_ids_is_the_highest_id_plus_one() -> None:
    content = json.loads(learn_byte_pairs([TEXT], 300))
    content["model"]["vocab"]["peace"] = 1000
    assert file_tokenizer(json.dumps(content)).size == 1001


@pytest.mark.parametrize("text", ["", "{}", '{"added_tokens": []}', '{"added_tokens": [{"id": 0, "special": true}]}'])
def test_broken_tokenizer_is_data_error(text: str, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(text)
    with pytest.raises(DataError, match=f"{tmp_path}/tokenizer.json cannot be used"):
        load_tokenizer(LanguageConfig(tokenizer=f"{tmp_path}/tokenizer.json"), ReaderRank(), [])


@pytest.mark.parametrize("path", ["tokenizer.json", "absent/tokenizer.json"])
def test_absent_tokenizer_is_data_error_with_remedy(path: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=f"{tmp_path}/{path} cannot be read: No such file.*: set --tokenizer to one"):
        load_tokenizer(LanguageConfig(tokenizer=f"{tmp_path}/{path}"), ReaderRank(), [])


def test_missing_learnt_tokenizer_of_checkpoints_is_an_error(tmp_path: Path) -> None:
    config = LanguageConfig(tokenizer="bpe", vocabulary=300, bucket=f"file://{tmp_path}", job="training")
    (tmp_path / "checkpoints" / "training" / "step-000000001").mkdir(parents=True)
    with pytest.raises(ConfigurationError, match=r"training/tokenizer/tokenizer\.json is missing; restore that file"):
        load_tokenizer(config, ReaderRank(), [TEXT])


def test_resumed_run_keeps_the_learnt_tokens(tmp_path: Path) -> None:
    data = write_texts(tmp_path / "texts", steps=12)
    flags = ("--tokenizer=bpe", "--vocabulary=288", *CONSTANT_RATE_FLAGS)
    train(data, tmp_path / "parts", *flags, ranks=2, batches=2)
    kept = tmp_path / "parts" / "training" / "tokenizer" / "tokenizer.json"
    before = kept.read_text()
    assert json.loads(before)["added_tokens"][0]["content"] == SEPARATOR_TEXT
    result = train(data, tmp_path / "parts", *flags, "--epochs=2", "--sample-tokens=9", "--prompt=the ")
    assert len(result.events("resume")) == 1
    assert kept.read_text() == before
    (sample,) = [event["text"] for event in metrics(tmp_path / "parts", "sample")]
    assert json.loads(sample).startswith("the ")
    train(data, tmp_path / "whole", *flags, "--epochs=2")
    assert evaluations(tmp_path / "parts") == pytest.approx(evaluations(tmp_path / "whole"), rel=1e-5)


def test_bits_per_byte_count_bytes_of_the_text(tmp_path: Path) -> None:
    data = write_texts(tmp_path / "texts", steps=4)
    train(data, tmp_path, "--tokenizer=bpe", "--vocabulary=300")
    (event,) = metrics(tmp_path, "test")
    documents = [path.read_bytes() for path in sorted((data / "test").iterdir())]
    kept = file_tokenizer((tmp_path / "training" / "tokenizer" / "tokenizer.json").read_text())
    tokens = sum(len(found) + 1 for found in kept.encode(documents))
    assert tokens < 0.8 * sum(map(len, documents))
    bits = event["loss"] / math.log(2) * tokens / sum(map(len, documents))
    assert event["bits_per_byte"] == pytest.approx(bits, rel=1e-4)
