"""Problem: an error in a configuration, with a stable code. Settings, jobs, policy and rehearsals report problems."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from pydantic_core import PydanticUndefined

from settings.secret_scan import may_be_secret

MAX_VALUE_CHARACTERS = 60
"""Characters of a value that a message shows."""

UNDEFINED: object = PydanticUndefined
"""Value of a problem without a value to show."""

Path = tuple[str | int, ...]


def path_of(text: str) -> Path:
    """Parse a text such as `pools[0].name` into a path."""
    return tuple(int(index) if index else key for key, index in re.findall(r"([^.\[]+)|\[(\d+)\]", text))


def dotted(path: Iterable[str | int]) -> str:
    """Return the path as a text such as `pools[0].name`."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).removeprefix(".")


class Invalid(ValueError):
    """Invalid value of a setting. The problem's code is `settings.` and `code`."""

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
    """Text after key and value: the allowed values and the remedy."""
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
