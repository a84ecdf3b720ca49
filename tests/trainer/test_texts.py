"""Each token of the texts is predicted once an epoch by any number of ranks, also if that number changes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.trainer.image_sets import ReaderRank
from trainer.config import LanguageConfig
from trainer.data.datasets import NO_LABEL
from trainer.data.sampler import EpochSampler
from trainer.data.texts import Texts, Tokens, read_documents
from trainer.exit_codes import DataError
from trainer.language.coder import Coder
from trainer.language.sizes import SEPARATOR
from trainer.storage import Folder

DOCUMENTS = st.lists(st.binary(min_size=1, max_size=40), min_size=1, max_size=6)


def row_of(documents: list[bytes]) -> list[int]:
    """Return the tokens of documents in order."""
    return [token for text in documents for token in (SEPARATOR, *text)] + [SEPARATOR]


@given(DOCUMENTS, st.integers(1, 50))
def test_samples_predict_every_token_once(documents: list[bytes], context: int) -> None:
    tokens, row = Tokens(documents, context, Coder()), row_of(documents)
    everything = np.arange(tokens.num_samples)
    inputs, labels = tokens.batch(everything, tokens.num_samples + 1)
    known = labels != NO_LABEL
    assert labels[known].tolist() == row[1:]
    assert inputs[known].tolist() == row[:-1]
    assert not known[-1].any()
    assert tokens.targets(everything) == tokens.num_targets == len(row) - 1
    assert sum(tokens.targets(everything[[number]]) for number in everything) == len(row) - 1


def texts(folder: Path, *, batch_size: int = 3, context: int = 8) -> Texts:
    """Return the texts in a folder."""
    return Texts(LanguageConfig(data_dir=str(folder), batch_size=batch_size, context=context), ReaderRank())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with texts in both formats."""
    folder = tmp_path_factory.mktemp("texts")
    for split in ("train", "test"):
        (folder / split).mkdir()
        (folder / split / "b.txt").write_text("The second document, of one file.", encoding="utf-8")
        lines = [json.dumps({"text": text}) for text in ("First.", "", "Größe")]
        (folder / split / "a.jsonl").write_text("\n".join(lines) + "\n\n", encoding="utf-8")
    return folder


def test_documents_are_read_in_order(folder: Path) -> None:
    found = list(read_documents(Folder(str(folder)), "train", ReaderRank()))
    assert found == [b"First.", "Größe".encode(), b"The second document, of one file."]


@pytest.mark.parametrize("worlds", [[1], [2], [3, 1, 2], [5]])
def test_epoch_predicts_every_token_once_over_changing_ranks(worlds: list[int], folder: Path) -> None:
    data = texts(folder)
    place: dict[str, int] | None = None
    found: list[torch.Tensor] = []
    for number, world in enumerate(worlds):
        ranks = [EpochSampler(data.num_samples, rank=rank, world=world, batch_size=1, seed=3) for rank in range(world)]
        for sampler in ranks:
            if place:
                sampler.load_state(place)
        while ranks[0].steps_left and (number == len(worlds) - 1 or ranks[0].position < 2 * (number + 1)):
            batches = [data.batch(sampler.next(), world=world) for sampler in ranks]
            assert len({batch.inputs.shape for batch in batches}) == 1, "ranks in lockstep need equal shapes"
            labels = torch.cat([batch.labels[batch.labels != NO_LABEL] for batch in batches])
            assert {batch.scale for batch in batches} == {world / len(labels)}
            found.append(labels)
        place = ranks[0].state()
    assert sorted(torch.cat(found).tolist()) == sorted(
        row_of([b"First.", "Größe".encode(), (folder / "train" / "b.txt").read_bytes()])[1:]
    )


@pytest.mark.parametrize("world", [1, 2, 3, 7])
def test_ranks_evaluate_every_token_once_in_equally_many_batches(world: int, folder: Path) -> None:
    data = texts(folder, batch_size=2)
    parts = [list(data.test_batches(rank=rank, world=world)) for rank in range(world)]
    assert len({len(part) for part in parts}) == 1
    assert sum(int((labels != NO_LABEL).sum()) for part in parts for _, labels in part) == data.test_targets


@pytest.mark.parametrize("line", ["{}", "[]", '{"text": 3}', "{", '"text"'])
def test_line_that_is_no_document_is_rejected(line: str, tmp_path: Path) -> None:
    (tmp_path / "train").mkdir()
    (tmp_path / "train" / "a.jsonl").write_text(f'{{"text": "a"}}\n{line}\n', encoding="utf-8")
    with pytest.raises(DataError, match=r"train/a\.jsonl, line 2: not a document; allowed is"):
        texts(tmp_path)


@pytest.mark.parametrize("name", ["train/a.md", "train/a.txt", "other/a.txt"])
def test_folder_without_text_is_rejected(name: str, tmp_path: Path) -> None:
    (tmp_path / name).parent.mkdir()
    (tmp_path / name).write_text("" if name == "train/a.txt" else "text", encoding="utf-8")
    with pytest.raises(DataError, match="has no text of train: allowed are train/"):
        texts(tmp_path)
