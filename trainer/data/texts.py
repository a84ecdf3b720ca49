"""Texts as tokens: documents on a disk or in a bucket, packed into samples of equal length."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import torch

from trainer.config import LanguageConfig
from trainer.data.datasets import NO_LABEL, Batch, to_device
from trainer.data.image_files import warn
from trainer.data.sampler import EpochSampler, Share
from trainer.exit_codes import DataError
from trainer.language.coder import Coder, load_coder
from trainer.runtime.base import Runtime
from trainer.storage import Folder

Numbers = npt.NDArray[np.int64]
TEXT_ENDING, LINES_ENDING = ".txt", ".jsonl"
"""Endings of a file that is one document, and of a file with a document per line."""
TEXT_KEY = "text"
"""Key of the text in a line of JSON."""


class Tokens:
    """A split as one row of tokens, cut into samples of `context` tokens. Each token is predicted once."""

    def __init__(self, documents: Sequence[bytes], context: int, coder: Coder) -> None:
        self.num_bytes = sum(map(len, documents))
        parts = list(coder.encode(documents))
        row = np.full(sum(map(len, parts)) + len(parts) + 1, coder.separator, dtype=np.min_scalar_type(coder.size))
        start = 1
        for part in parts:
            row[start : start + len(part)] = part
            start += len(part) + 1
        self._row, self._context, self._separator = row, context, coder.separator
        self.num_targets = len(row) - 1
        self.num_samples = -(-self.num_targets // context)

    def targets(self, samples: Numbers) -> int:
        """Return the number of tokens that these samples predict. The last sample of a split may be shorter."""
        missing = self.num_samples * self._context - self.num_targets
        return len(samples) * self._context - (missing if (samples == self.num_samples - 1).any() else 0)

    def batch(self, samples: Numbers, rows: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the tokens of these samples, and the next token of each. Rows beyond the samples have no labels."""
        places = samples[:, None] * self._context + np.arange(self._context + 1)
        found = torch.full((rows, self._context + 1), self._separator, dtype=torch.int64)
        found[: len(samples)] = torch.from_numpy(self._row[places.clip(max=self.num_targets)].astype(np.int64))
        labels = found[:, 1:].clone()
        labels[len(samples) :] = NO_LABEL
        labels[: len(samples)][torch.from_numpy(places[:, 1:] > self.num_targets)] = NO_LABEL
        return found[:, :-1].contiguous(), labels


class Texts:
    """Training and test texts. Each rank holds the tokens of all."""

    broken: Sequence[str] = ()

    def __init__(self, config: LanguageConfig, runtime: Runtime) -> None:
        folder = Folder(config.data_dir)
        train, test = (list(read_documents(folder, split, runtime)) for split in ("train", "test"))
        self.coder = load_coder(config, runtime, train)
        self._train, self._test = (Tokens(documents, config.context, self.coder) for documents in (train, test))
        self._device, self._batch_size = runtime.data_device, config.batch_size
        self.classes = config.vocabulary
        self.num_samples, self.num_tests = self._train.num_samples, self._test.num_samples
        self.test_bytes, self.test_targets = self._test.num_bytes, self._test.num_targets
        self.bytes_per_token = self._train.num_bytes / self._train.num_targets
        """Bytes of the training texts per predicted token."""

    def follow(self, sampler: EpochSampler) -> None:
        """Do nothing: all texts are loaded."""

    def batch(self, share: Share, *, world: int) -> Batch:
        """Return this rank's samples of one training step. All ranks have equally many rows."""
        inputs, labels = self._train.batch(share.indices.numpy(), -(-share.total // world))
        scale = world / self._train.targets(share.all_indices.numpy())
        return Batch(inputs=to_device(inputs, self._device), labels=to_device(labels, self._device), scale=scale)

    def test_batches(self, *, rank: int, world: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Yield every world-th sample of the test set, starting at the rank-th. All ranks have equally many batches."""
        own = np.arange(rank, self.num_tests, world)
        for start in range(0, -(-self.num_tests // world), self._batch_size):
            samples = own[start : start + self._batch_size]
            inputs, labels = self._test.batch(samples, max(1, len(samples)))
            yield to_device(inputs, self._device), to_device(labels, self._device)


def read_documents(folder: Folder, split: str, runtime: Runtime) -> Iterator[bytes]:
    """Yield the documents of a split in the order of their files' names. Raises DataError if there are none."""
    files = folder.files(split) if split in folder.names() else {}
    texts = [name for name in files if name.endswith((TEXT_ENDING, LINES_ENDING))]
    if (others := sorted(files.keys() - texts)) and runtime.rank == 0:
        warn(
            f"{folder.url}/{split} has {len(others)} files that are not texts by their endings; they are skipped; the "
            f"first: {others[0]!r}; endings are {TEXT_ENDING} {LINES_ENDING}"
        )
    is_empty = True
    for name in texts:
        content = folder.read(name)
        runtime.heartbeat()
        documents = _lines(f"{folder.url}/{name}", content) if name.endswith(LINES_ENDING) else [content]
        for document in filter(None, documents):
            is_empty = False
            yield document
    if is_empty:
        raise DataError(
            f"{folder.url} has no text of {split}: allowed are {split}/*{TEXT_ENDING} and {split}/*{LINES_ENDING} with "
            "at least one byte; set --data-dir to a folder with them"
        )


def _lines(where: str, content: bytes) -> Iterator[bytes]:
    """Yield the texts in lines of JSON."""
    for number, line in enumerate(content.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            text = json.loads(line)[TEXT_KEY]
        except (ValueError, TypeError, KeyError):
            text = None
        if not isinstance(text, str):
            raise DataError(
                f'{where}, line {number}: not a document; allowed is {{"{TEXT_KEY}": "..."}}: create the file again'
            )
        yield text.encode("utf-8", errors="surrogatepass")
