"""Problem: an error in a configuration, with a stable code. Also detects secrets, so that messages can hide them.

`make check` searches the repository with detect-secrets, which knows the tokens of more issuers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from pydantic_core import PydanticUndefined

TOKEN_PATTERNS: Mapping[str, re.Pattern[str]] = MappingProxyType(
    {
        "a private key": re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----"),
        "an AWS access key": re.compile(r"\b(AKIA|ASIA)[A-Z0-9]{16}\b"),
        "a Google API key": re.compile(r"\bAIza[\w-]{35}"),
        "a GitHub token": re.compile(r"\b(gh[opsur]_\w{36}|github_pat_\w{22})"),
        "a Hugging Face token": re.compile(r"\bhf_[A-Za-z0-9]{30}"),
        "a Weights & Biases API key": re.compile(r"\bwandb_v\d_\w{32}"),
        "an address with a password": re.compile(r"\b[a-z][a-z0-9+.-]*://[^\s/:@]*:(?![{<%*])[^\s/@$]+@"),
    }
)
"""Noun -> format of a token, or of a URL with a password."""
_SECRET_NAME = re.compile(
    r"(.*_)?((API|ACCESS|AUTH|SECRET|PRIVATE|SSH|ACCOUNT)_?KEY|(HF|HUB|API|ACCESS|AUTH|BEARER|GITHUB)_?TOKEN|SECRET)"
    r"|TOKEN|(.*_)?(PASS|PWD|AUTHORIZATION)|.*(PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?)"
)
"""Names of secrets, in capitals and with `_` instead of `-`."""
_KEY_NAME = re.compile(r"(.*_)?(KEY|TOKEN)|WANDB")
"""Names of secrets or of other values, such as SORT_KEY and PAD_TOKEN. Under these names, only a random value counts as
a secret."""
_RANDOM_TEXT = re.compile(r"(?=.*\d)(?=.*[A-Za-z])(?=.*[A-Za-z0-9+]{16})[\w+/=-]{20,}")
"""Generated keys: long strings of letters and digits. Paths and labels, which consist of short words, do not match."""
_NOT_SECRET = re.compile(
    r"/[\w./-]+|[\w./-]+\.(json|pem|key|crt|txt|ya?ml)|true|false|none|null|<[^>]*>|\[\w{1,16}\]|\$[({].*|\d{1,3}|",
    re.IGNORECASE,
)
"""Values that are not secrets under any name: paths, YAML words, a tokenizer's special tokens, references, counts."""
_ASSIGNMENT = re.compile(r"""(?<![\w.+-])([\w.+-]+)(?:=|["']\s*:\s*)(?=["']?(?![\[{])((?:\$\{[^}]*\}|[^\s"';&,}])+))""")
"""Name and value inside text: `password=hunter2`, or `"password": "hunter2"` in JSON."""
_LOGIN = re.compile(r"\b(?i:authorization|x-api-key)\s*:\s*(?![$<{])\S|\bBearer\s+(?=\S*\d)\S")
"""HTTP header with credentials."""
_USER_INFO = re.compile(r"(?<![^\s/:@])[^\s/:@]+:[^\s/@]+@(?!sha256:)")
"""User and password before a host, without a scheme."""
_SECRET_WORD = re.compile(
    r"(?i)(passw\w*|passphrase|(?<![a-z])(pass|pwd)|key|token|secret\w*|credentials?|bearer)(_\d+)?[\"']?[\s=:]+\S"
)
"""Word for a secret, followed by a value."""
_CLOUD_ID = re.compile(r"[a-z]+-[0-9a-f]{8,17}")


def token_kind(text: str) -> str | None:
    """Return the noun of the first token in `text`, such as "a GitHub token", or None."""
    return next((noun for noun, pattern in TOKEN_PATTERNS.items() if pattern.search(text)), None)


def looks_random(text: str) -> bool:
    """Return True if `text` looks like a generated key."""
    return bool(_RANDOM_TEXT.fullmatch(text))


def secrets_in_variables(variables: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """Yield the name of each variable with a secret in plain text, and a noun such as "a GitHub token"."""
    for name, value in variables.items():
        if isinstance(value, str) and (noun := token_kind(value) or _named_secret(name, value)):
            yield name, noun


def secrets_in_arguments(arguments: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Yield the index of each argument with a secret in plain text, and a noun such as "a GitHub token"."""
    option = ""
    for index, argument in enumerate(arguments):
        name = "" if argument.startswith("--") else option
        if noun := token_kind(argument) or _named_secret(name, argument):
            yield index, noun
        option = argument if argument.startswith("-") and "=" not in argument else ""


def may_be_secret(value: object, name: str = "") -> bool:
    """Return True if messages must hide the value of the key `name`, because it may be a misplaced secret."""
    text = _flatten(value)
    is_random = looks_random(text) and not _CLOUD_ID.fullmatch(text)
    return bool(is_random or token_kind(text) or _USER_INFO.search(text) or _SECRET_WORD.search(f"{name}: {text}"))


def _flatten(value: object) -> str:
    """Return a value's keys and values as one string."""
    if isinstance(value, Mapping):
        return " ".join(f"{key}: {_flatten(item)}" for key, item in value.items())
    if isinstance(value, Sequence) and not isinstance(value, str):
        return " ".join(map(_flatten, value))
    return str(value)


def _named_secret(name: str, value: str) -> str | None:
    """Return "a secret" if the name or the text of a value shows that it contains a secret, else None."""
    pairs = [(name, value), *(match.groups() for match in _ASSIGNMENT.finditer(value))]
    return "a secret" if _LOGIN.search(value) or any(_is_secret(*pair) for pair in pairs) else None


def _is_secret(name: str, value: str) -> bool:
    # `--wandb.api-key` and `API_KEY_2` both become `API_KEY`.
    plain = re.sub(r"_\d+$", "", name.rpartition(".")[2].strip("-+").replace("-", "_")).upper()
    if _NOT_SECRET.fullmatch(value):
        return False
    return bool(_SECRET_NAME.fullmatch(plain) or (_KEY_NAME.fullmatch(plain) and looks_random(value)))


MAX_VALUE_CHARACTERS = 60
"""Maximum number of characters of a value that a message shows."""

UNDEFINED: object = PydanticUndefined
"""Value of a problem that has no value to show."""

Path = tuple[str | int, ...]


def path_of(text: str) -> Path:
    """Parse a string such as `pools[0].name` into a path."""
    return tuple(int(index) if index else key for key, index in re.findall(r"([^.\[]+)|\[(\d+)\]", text))


def dotted(path: Iterable[str | int]) -> str:
    """Return the path as a string such as `pools[0].name`."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).removeprefix(".")


class Invalid(ValueError):
    """Invalid value of a setting. The problem's code is `settings.` followed by `code`."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class Problem:
    """Error in a configuration."""

    code: str
    """Stable name of the rule: lower-case words with dots, such as `gke.pool.zone_unknown`."""
    path: Path
    """Keys and indices from the top of the configuration."""
    message: str
    """Text after key and value: the error, the allowed values and the remedy."""
    value: object = UNDEFINED
    """Value in the configuration, or UNDEFINED."""
    namespace: str = "trainyard"
    """Prefix of the keys in the stack's file, or the name of the resource that has the inputs."""

    def below(self, *keys: str | int) -> Problem:
        """Return the same problem with the keys in front of its path."""
        return replace(self, path=(*keys, *self.path))

    def __str__(self) -> str:
        key = f"{self.namespace}:{dotted(part if isinstance(part, int) else _redacted(part) for part in self.path)}"
        # A secret in the wrong place must not reach a log.
        if self.value is UNDEFINED or may_be_secret(self.value, str(self.path[-1]) if self.path else ""):
            return f"{key}: {self.message}"
        text = json.dumps(self.value, default=str)
        if len(text) > MAX_VALUE_CHARACTERS:
            text = f"{text[: MAX_VALUE_CHARACTERS - 3]}..."
        return f"{key} = {text}: {self.message}"


def _redacted(key: str) -> str:
    """Return the key, or dots if it contains a secret. `DB_PASSWORD:hunter2`, without a space, is such a key."""
    return "..." if may_be_secret(key.replace(":", ": ")) else key
