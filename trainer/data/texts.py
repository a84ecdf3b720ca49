"""Texts as tokens: documents, and rows of tokens, from a disk or bucket, packed into samples of equal length."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from numpy.lib.format import open_memmap, read_array

from trainer.config import LanguageConfig
from trainer.data.datasets import NO_LABEL, Batch, Data, to_device
from trainer.data.sampler import Share
from trainer.exit_codes import DataError
from trainer.language.sizes import BPE
from trainer.language.tokenizer import ByteTokenizer, Row, load_tokenizer
from trainer.reporter import warn
from trainer.rules import TEXT_SUFFIXES, invalid_setting
from trainer.runtime.base import Runtime
from trainer.storage import Folder

Numbers = npt.NDArray[np.int64]
TEXT_SUFFIX, LINES_SUFFIX, TABLE_SUFFIX, TOKENS_SUFFIX = SUFFIXES = tuple(TEXT_SUFFIXES.values())
TEXT_KEY = "text"
"""Key of the text in a line of JSON, and its column in a table."""
MAX_COUNTED_TOKENS, COUNT_BATCH_TOKENS = 2**26, 2**20
"""Maximum number of a split's tokens that `_count_bytes` decodes to count bytes, and number to decode at once."""


class TokenRow(NamedTuple):
    """Consecutive tokens in memory or in a mapped file."""

    tokens: Row
    file: str
    """URL of the file, in messages."""

    def check(self, tokens: Row, tokenizer: ByteTokenizer) -> Row:
        """Return `tokens`, a part of this row. Raises DataError if the tokenizer lacks one of them."""
        if len(tokens) and (highest := int(tokens.max())) >= tokenizer.size:
            raise DataError(
                f"{self.file} has token {highest}; must be 0 to {tokenizer.size - 1}, the tokens of the tokenizer: "
                "set --tokenizer to the one that the file was made with, or create the file again"
            )
        return tokens


class Tokens:
    """A split as rows of tokens, cut into samples of `context` tokens. Each token is the label of one prediction."""

    def __init__(self, parts: Sequence[bytes | TokenRow], context: int, tokenizer: ByteTokenizer) -> None:
        self._context, self._tokenizer = context, tokenizer
        arrays = [part for part in parts if isinstance(part, TokenRow)]
        self.num_bytes = sum(len(part) for part in parts if isinstance(part, bytes)) + _count_bytes(arrays, tokenizer)
        """Bytes of the text. An estimate if files hold many tokens."""
        rows: list[TokenRow] = []
        for is_row, group in groupby(parts, lambda part: isinstance(part, TokenRow)):
            found = list(group)
            rows += found if is_row else [_joined(found, tokenizer)]  # type: ignore[arg-type]  # is_row gives the type
        self._rows = [*rows, _joined([], tokenizer)]
        self._ends = np.cumsum([len(row.tokens) for row in self._rows])
        self.num_targets = int(self._ends[-1]) - 1
        self.num_samples = -(-self.num_targets // context)

    def targets(self, samples: Numbers) -> int:
        """Return the number of labels of these samples. The last sample of a split may have fewer than `context`."""
        missing = self.num_samples * self._context - self.num_targets
        return len(samples) * self._context - (missing if (samples == self.num_samples - 1).any() else 0)

    def batch(self, samples: Numbers, rows: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return two tensors of rows x context: the tokens of these samples, and as each token's label the next token.

        If there are more rows than samples, the other rows have no labels.
        """
        places = samples[:, None] * self._context + np.arange(self._context + 1)
        found = torch.full((rows, self._context + 1), self._tokenizer.separator, dtype=torch.int64)
        found[: len(samples)] = torch.from_numpy(self._gather(places.clip(max=self.num_targets)))
        labels = found[:, 1:].clone()
        labels[len(samples) :] = NO_LABEL
        labels[: len(samples)][torch.from_numpy(places[:, 1:] > self.num_targets)] = NO_LABEL
        return found[:, :-1].contiguous(), labels

    def _gather(self, places: Numbers) -> Numbers:
        """Return the tokens at these places. Places count the tokens of all rows, one row after the other."""
        found, numbers = np.empty_like(places), np.searchsorted(self._ends, places, side="right")
        for number in np.unique(numbers):
            row, is_in = self._rows[number], numbers == number
            start = self._ends[number] - len(row.tokens)
            found[is_in] = row.check(row.tokens[places[is_in] - start], self._tokenizer)
        return found


def _joined(documents: Sequence[bytes], tokenizer: ByteTokenizer) -> TokenRow:
    """Return the tokens of documents with a separator before each. Without documents, return only a separator."""
    parts = list(tokenizer.encode(documents)) or [np.empty(0)]
    row = np.full(sum(map(len, parts)) + len(parts), tokenizer.separator, dtype=np.min_scalar_type(tokenizer.size))
    start = 1
    for part in parts:
        row[start : start + len(part)] = part
        start += len(part) + 1
    return TokenRow(row, "")


def _count_bytes(rows: Sequence[TokenRow], tokenizer: ByteTokenizer) -> int:
    """Return the bytes of the text of rows. Estimate them if the rows have more than MAX_COUNTED_TOKENS."""
    lengths, total = tokenizer.lengths(), sum(len(row.tokens) for row in rows)
    size = counted = 0
    for row in rows:
        end = math.ceil(len(row.tokens) * min(1, MAX_COUNTED_TOKENS / total)) if total else 0
        for start in range(0, end, COUNT_BATCH_TOKENS):
            part = row.check(row.tokens[start : min(end, start + COUNT_BATCH_TOKENS)], tokenizer)
            size += int(np.bincount(part, minlength=tokenizer.size) @ lengths)
        counted += end
    return round(size * total / max(1, counted))


class Texts(Data):
    """Training and test texts. Each rank has the tokens of all documents in memory. The ranks of a host share mapped
    rows."""

    def __init__(self, config: LanguageConfig, runtime: Runtime) -> None:
        folder = Folder(config.data_dir)
        train, test = (list(read_parts(folder, split, runtime)) for split in ("train", "test"))
        if config.tokenizer == BPE and any(isinstance(part, TokenRow) for part in (*train, *test)):
            allowed = f"bytes or a tokenizer.json, because {folder.url}/*/*{TOKENS_SUFFIX} hold tokens"
            raise invalid_setting("tokenizer", BPE, allowed, "set --tokenizer to the one that the files were made with")
        self.tokenizer = load_tokenizer(config, runtime, [part for part in train if isinstance(part, bytes)])
        self._train, self._test = (Tokens(parts, config.context, self.tokenizer) for parts in (train, test))
        if (tokens := self._train.num_targets) < config.context and runtime.rank == 0:
            warn(
                f"{folder.url}/train has {tokens} tokens, fewer than the context of {config.context}: the only sample "
                "is partly empty; lower --context, or add texts"
            )
        self._device, self._batch_size = runtime.data_device, config.batch_size
        self.classes, self.sample_shape = config.vocabulary, (config.context,)
        self.num_samples, self.num_tests = self._train.num_samples, self._test.num_samples
        self.test_bytes, self.test_targets = self._test.num_bytes, self._test.num_targets
        self.bytes_per_token = self._train.num_bytes / self._train.num_targets
        """Bytes of the training texts per label."""

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


def read_parts(folder: Folder, split: str, runtime: Runtime) -> Iterator[bytes | TokenRow]:
    """Yield the documents and rows of a split in the order of its files' names. Raises DataError if there are none."""
    files = folder.files(split) if split in folder.names() else {}
    texts = [name for name in files if name.endswith(SUFFIXES)]
    if (others := sorted(files.keys() - texts)) and runtime.rank == 0:
        warn(
            f"{folder.url}/{split} has {len(others)} files without a text suffix; they are skipped; the "
            f"first: {others[0]!r}; text suffixes are {' '.join(SUFFIXES)}"
        )
    is_empty = True
    for name in texts:
        runtime.heartbeat()
        for part in _parts(folder, name):
            if len(part.tokens if isinstance(part, TokenRow) else part):
                is_empty = False
                yield part
    if is_empty:
        raise DataError(
            f"{folder.url} has no text of {split}; it must have {' or '.join(f'{split}/*{each}' for each in SUFFIXES)} "
            "with at least one byte or token; set --data-dir to a folder with them"
        )


def _parts(folder: Folder, name: str) -> Iterator[bytes | TokenRow]:
    """Yield the documents in a file, or its row of tokens."""
    where = f"{folder.url}/{name}"
    if name.endswith(TOKENS_SUFFIX):
        yield TokenRow(_tokens(folder, name, where), where)
    elif name.endswith(TEXT_SUFFIX):
        yield folder.read(name)
    else:
        is_table = name.endswith(TABLE_SUFFIX)
        for number, text in _table(folder, name, where) if is_table else _lines(folder.read(name)):
            if not isinstance(text, str):
                row, content = ("row", "have a text") if is_table else ("line", f'be {{"{TEXT_KEY}": "..."}}')
                raise DataError(
                    f"{where}, {row} {number}: not a document; each {row} must {content}: create the file again"
                )
            yield text.encode("utf-8", errors="surrogatepass")


def _tokens(folder: Folder, name: str, where: str) -> Row:
    """Return the tokens in a file. If the file is on a disk, map it, so that the ranks of a host share its memory."""
    try:
        with folder.open(name) as file:
            row: Row = read_array(file) if not folder.is_local else open_memmap(f"{folder.path}/{name}", mode="r")
    except (ValueError, EOFError) as error:
        problem = str(error)
    else:
        if row.ndim == 1 and row.dtype in (np.uint16, np.uint32):
            return np.asarray(row)
        problem = f"its shape is {row.shape}, its type {row.dtype}"
    raise DataError(
        f"{where} is not a row of tokens ({problem}); must be an array of uint16 or uint32 with one dimension, saved "
        "with numpy.save: create the file again"
    )


def _table(folder: Folder, name: str, where: str) -> Iterator[tuple[int, object]]:
    """Yield the number and the text of each row of a Parquet file."""
    try:
        # Imported here because only `image: frameworks` has pyarrow.
        import pyarrow  # type: ignore[import-untyped]  # without type hints
        from pyarrow import parquet
    except ImportError:
        raise DataError(
            f"{where} cannot be read without pyarrow, which this image does not have; texts must be *{TEXT_SUFFIX} or "
            f"*{LINES_SUFFIX}, or the image must have pyarrow: add pyarrow to the file in the job's `requirements`, or "
            "set `image: frameworks`"
        ) from None
    try:
        with folder.open(name) as file:
            batches = parquet.ParquetFile(file).iter_batches(columns=[TEXT_KEY])
            yield from enumerate((text for batch in batches for text in batch.column(TEXT_KEY).to_pylist()), start=1)
    except (pyarrow.ArrowException, OSError, KeyError) as error:
        raise DataError(
            f"{where} cannot be read ({error}); must be Parquet with texts in the column `{TEXT_KEY}`: create the "
            "file again"
        ) from None


def _lines(content: bytes) -> Iterator[tuple[int, object]]:
    """Yield the number and the text of each line of JSON that is not blank. A missing text is None."""
    for number, line in enumerate(content.splitlines(), start=1):
        if line.strip():
            try:
                yield number, json.loads(line)[TEXT_KEY]
            except (ValueError, TypeError, KeyError):
                yield number, None
