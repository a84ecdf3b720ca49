"""Tokens of texts: bytes, byte pairs learnt from the training texts, or the tokens of a tokenizer.json."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import accumulate, groupby, islice, takewhile
from typing import Any

import numpy as np
import numpy.typing as npt

from trainer.config import LanguageConfig
from trainer.exit_codes import DataError
from trainer.language.sizes import BPE, BYTES, SEPARATOR
from trainer.rules import invalid_setting
from trainer.runtime.base import Runtime
from trainer.storage import Folder, MissingFileError, checkpoints_folder
from trainer.watchdog import wait_for_ranks

TOKENIZER_FILE, TOKENIZER_FOLDER = "tokenizer.json", "tokenizer"
"""File of a tokenizer, and its folder in the job's folder, where no lifecycle rule of the bucket deletes it."""
SEPARATOR_TEXT = "<|separator|>"
"""Name of the separator in tokenizers that this module creates."""
MAX_LEARNT_BYTES = 2**28
"""Maximum bytes of the training texts from which `bpe` learns byte pairs."""
BYTE_TOKEN = re.compile("<0x[0-9A-F]{2}>")
"""Name of the token for a single byte, in tokenizers whose other tokens are text."""
BATCH, PIECE_LENGTH = 256, 2**12
"""Number of texts to tokenize at once, and minimum characters of a piece. Each byte needs up to 200 bytes of memory."""
PIECE, WHOLE = re.compile(rf"\A\Z|.{{{PIECE_LENGTH}}}.*?\S(?=[ \t\r\n])|.+", re.DOTALL), re.compile(r"\A.*", re.DOTALL)
"""Part of a text up to the end of a word, or a whole text. No learnt token continues past the end of a word."""
Row = npt.NDArray[Any]


class ByteTokenizer:
    """Tokenizer whose tokens are bytes, and base class of other tokenizers."""

    size, separator = SEPARATOR + 1, SEPARATOR
    """Number of tokens, and the token before each document and after the last one."""

    def encode(self, documents: Sequence[bytes]) -> Iterator[Row]:
        """Yield the tokens of each document."""
        for document in documents:
            yield np.frombuffer(document, dtype=np.uint8)

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of tokens."""
        return bytes(tokens).decode("utf-8", errors="replace")

    def lengths(self) -> Row:
        """Return the number of bytes of text that each token stands for, 0 for special tokens."""
        return np.array([1] * SEPARATOR + [0])


class FileTokenizer(ByteTokenizer):
    """Tokenizer from a tokenizer.json. Its first special token separates documents."""

    def __init__(self, text: str, where: str, runtime: Runtime, piece: re.Pattern[str] = WHOLE) -> None:
        from tokenizers import Tokenizer

        self._runtime, self._piece = runtime, piece
        try:
            special = [token["id"] for token in json.loads(text)["added_tokens"] if token["special"]]
            self._tokenizer = Tokenizer.from_str(text)
            self.separator = int(special[0])
            # The numbers of tokens can have gaps.
            self.size = 1 + max(self._tokenizer.get_vocab().values())
        except Exception as error:  # the library raises Exception itself
            raise DataError(
                f"{where} cannot be used ({type(error).__name__}: {error}); must be a tokenizer.json with a special "
                "token: set --tokenizer to another file"
            ) from None

    def encode(self, documents: Sequence[bytes]) -> Iterator[Row]:
        """Yield the tokens of each document. Replaces bytes that are not UTF-8."""
        texts = enumerate(document.decode("utf-8", errors="replace") for document in documents)
        pieces = ((number, piece.group()) for number, text in texts for piece in self._piece.finditer(text))
        for _, found in groupby(self._encode_pieces(pieces), key=lambda pair: pair[0]):
            yield np.concatenate([tokens for _, tokens in found])

    def _encode_pieces(self, pieces: Iterator[tuple[int, str]]) -> Iterator[tuple[int, Row]]:
        """Yield the number of the document and the tokens of each piece."""
        while batch := list(islice(pieces, BATCH)):
            texts, encode = [text for _, text in batch], self._tokenizer.encode_batch_fast
            work = ThreadPoolExecutor(1).submit(encode, texts, add_special_tokens=False)
            encodings = self._runtime.wait_for(work)
            for (number, _), found in zip(batch, encodings, strict=True):
                yield number, np.array(found.ids, dtype=np.uint32)
            self._runtime.heartbeat()

    def decode(self, tokens: Sequence[int]) -> str:
        return str(self._tokenizer.decode(list(tokens)))

    def lengths(self) -> Row:
        settings = json.loads(self._tokenizer.to_str())
        # Byte-level tokenizers write each byte as a letter. Others write text, with a mark for a space.
        is_byte_level = "ByteLevel" in json.dumps([settings["pre_tokenizer"], settings["decoder"]])
        found = np.zeros(self.size, dtype=np.int64)
        for text, token in self._tokenizer.get_vocab(with_added_tokens=False).items():
            plain = BYTE_TOKEN.sub("?", text).replace("▁", " ")
            found[token] = len(text) if is_byte_level else len(plain.encode())
        for token, added in self._tokenizer.get_added_tokens_decoder().items():
            found[token] = 0 if added.special else len(added.content.encode())
        return found


def load_tokenizer(config: LanguageConfig, runtime: Runtime, documents: Sequence[bytes]) -> ByteTokenizer:
    """Return the tokenizer of the settings. All ranks must call this function.

    Rank 0 saves a tokenizer other than bytes in the job's folder, for resumed runs and exports. For `bpe` it first
    learns byte pairs, unless an earlier run has saved them.
    """
    if config.tokenizer == BYTES:
        return ByteTokenizer()
    folder = Folder(config.bucket).child(config.job).child(TOKENIZER_FOLDER) if config.bucket else None
    saved = ""
    with suppress(MissingFileError):
        saved = folder.read(TOKENIZER_FILE).decode("utf-8", errors="replace") if folder else ""
    if config.tokenizer == BPE:
        text = saved
        if folder and not saved and checkpoints_folder(Folder(config.bucket), config.job).folders():
            allowed = f"the tokenizer of the job's checkpoints, but {folder.url}/{TOKENIZER_FILE} is missing"
            raise invalid_setting("tokenizer", BPE, allowed, "restore that file, or give --job another name")
        if not saved and runtime.rank == 0:
            text = runtime.wait_for(ThreadPoolExecutor(1).submit(learn_byte_pairs, documents, config.vocabulary))
        wait_for_ranks(runtime, "tokenizer")
        text, where = runtime.broadcast(text), "the learnt tokenizer"
    else:
        place, _, name = config.tokenizer.rpartition("/")
        text, where = _read(Folder(place or "."), name), config.tokenizer
        if folder and saved not in ("", text):
            allowed = f"the tokenizer of this job's earlier run, {folder.url}/{TOKENIZER_FILE}"
            raise invalid_setting("tokenizer", where, allowed, "give --tokenizer that file, or --job another name")
    found = FileTokenizer(text, where, runtime, PIECE if config.tokenizer == BPE else WHOLE)
    if found.size > config.vocabulary:
        allowed = f"at least {found.size}, the number of tokens of {where}"
        raise invalid_setting("vocabulary", config.vocabulary, allowed, "raise --vocabulary")
    if folder and not saved and runtime.rank == 0:
        folder.write(TOKENIZER_FILE, text.encode())
    return found


def _read(folder: Folder, name: str) -> str:
    """Return the text of a tokenizer.json. Raises DataError if it does not exist."""
    try:
        return folder.read(name).decode("utf-8", errors="replace")
    except MissingFileError as error:
        raise DataError(
            f"{error}; the tokenizer must be bytes, bpe, or an existing tokenizer.json: set --tokenizer to one, or "
            "copy the file there"
        ) from None


def learn_byte_pairs(documents: Sequence[bytes], size: int) -> str:
    """Return a tokenizer.json of at most `size` tokens: bytes, the separator, and the most frequent pairs."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=size, initial_alphabet=letters, special_tokens=[SEPARATOR_TEXT], show_progress=False
    )
    earlier_bytes = accumulate(map(len, documents), initial=0)
    learnt = takewhile(lambda pair: pair[1] < MAX_LEARNT_BYTES, zip(documents, earlier_bytes, strict=False))
    texts = (text[: MAX_LEARNT_BYTES - start].decode("utf-8", errors="replace") for text, start in learnt)
    tokenizer.train_from_iterator((piece.group() for text in texts for piece in PIECE.finditer(text)), trainer)
    return str(tokenizer.to_str())


def byte_tokenizer_json() -> str:
    """Return a tokenizer.json with the tokens of ByteTokenizer."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    # Byte-level tokenizers write each byte as a character, and printable bytes as themselves.
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(SEPARATOR) if byte not in printable]
    letters = {chr(byte): byte for byte in printable} | {chr(256 + place): byte for place, byte in enumerate(others)}
    tokenizer = Tokenizer(models.BPE(vocab=letters, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(SEPARATOR_TEXT, special=True)])
    return str(tokenizer.to_str())
