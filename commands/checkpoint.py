"""The state's files in a folder, made readable again after a `pulumi` was killed while it wrote them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

ATTRIBUTES = ".attrs"
"""File beside each file of a folder backend with its content type, written anew each time; it may be missing.

https://pkg.go.dev/gocloud.dev/blob/fileblob
"""
BACKUP = ".bak"
"""Pulumi's own copy of the state before the last change: https://www.pulumi.com/docs/iac/concepts/state-and-backends/"""


def repair(backend: str, stack: str) -> list[str]:
    """Mend the state of a stack in a folder backend; what was done, in words.

    A state that cannot be read gives way to the one before it. That one names what was being made as pending, so that
    nothing is forgotten.
    """
    if not backend.startswith("file://"):
        return []
    done = []
    for state in Path(backend.removeprefix("file://")).glob(f".pulumi/stacks/**/{stack}.json"):
        for attributes in (Path(f"{state}{ATTRIBUTES}"), Path(f"{state}{BACKUP}{ATTRIBUTES}")):
            if attributes.exists() and not _is_json(attributes):
                attributes.unlink()
                done.append(f"{attributes.name} was cut off and is removed")
        backup = Path(f"{state}{BACKUP}")
        if not _is_json(state) and _is_json(backup):
            shutil.copyfile(backup, state)
            done.append(f"{state.name} was cut off; the state before the last change is taken")
    return done


def _is_json(path: Path) -> bool:
    try:
        json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return True
