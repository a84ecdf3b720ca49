"""Problem: an error in a configuration, with a stable code. Settings, jobs, policy and rehearsal report problems."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from pydantic_core import PydanticUndefined

from settings.secret_scan import is_in

LONGEST_VALUE = 60
"""Characters of a value that a line shows."""

UNDEFINED: object = PydanticUndefined
"""Value of a problem that has none to show."""

Path = tuple[str | int, ...]


def path_of(text: str) -> Path:
    """Return the path of a text such as `pools[0].name`."""
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
        """Return the same problem with keys in front of its path."""
        return replace(self, path=(*keys, *self.path))

    def __str__(self) -> str:
        key = f"{self.namespace}:{dotted(part if isinstance(part, int) else _shown(part) for part in self.path)}"
        # A secret in the wrong place must not reach a log.
        if self.value is UNDEFINED or is_in(self.value, str(self.path[-1]) if self.path else ""):
            return f"{key}: {self.message}"
        shown = json.dumps(self.value, default=str)
        if len(shown) > LONGEST_VALUE:
            shown = f"{shown[: LONGEST_VALUE - 3]}..."
        return f"{key} = {shown}: {self.message}"


def _shown(key: str) -> str:
    """Return the key, or dots if it contains a secret. `DB_PASSWORD:hunter2`, without a space, is such a key."""
    return "..." if is_in(key.replace(":", ": ")) else key
