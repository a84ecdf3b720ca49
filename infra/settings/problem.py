"""Problem: one thing that is wrong, with a stable code, as settings, jobs and clouds report it."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

from pydantic_core import PydanticUndefined

from infra.settings.clear_secrets import is_in

LONGEST_VALUE = 60
"""Characters of a value that a line shows."""

UNDEFINED: object = PydanticUndefined
"""Value of a problem that has none to show."""

Path = tuple[str | int, ...]


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong."""

    code: str
    """Stable name of the rule: lower-case words with dots, such as `gke.pool.zone_unknown`."""
    path: Path
    """Keys and indices from the top of the configuration."""
    message: str
    """What is allowed and what to do."""
    value: object = UNDEFINED
    """What is there; undefined when nothing is."""
    namespace: str = "trainyard"
    """What the keys of the stack's file begin with."""

    def below(self, *keys: str | int) -> Problem:
        """Return the same problem with keys in front of its path."""
        return replace(self, path=(*keys, *self.path))

    def __str__(self) -> str:
        keys = "".join(f"[{part}]" if isinstance(part, int) else f".{_shown(part)}" for part in self.path)[1:]
        key = f"{self.namespace}:{keys}"
        # A secret at a wrong place is not to be in a log as well.
        if self.value is UNDEFINED or is_in(self.value, str(self.path[-1]) if self.path else ""):
            return f"{key}: {self.message}"
        shown = json.dumps(self.value, default=str)
        if len(shown) > LONGEST_VALUE:
            shown = f"{shown[: LONGEST_VALUE - 3]}..."
        return f"{key} = {shown}: {self.message}"


def _shown(key: str) -> str:
    """A key; `DB_PASSWORD:hunter2`, where a blank is missing, has a secret in it."""
    return "..." if is_in(key.replace(":", ": ")) else key
