"""State files of one stack in a folder backend: find, verify and repair them.

Layout: github.com/pulumi/pulumi v3.245.0, pkg/backend/diy/store.go and state.go. Before each write Pulumi copies the
state to `.bak`. After each command it copies the state to `.pulumi/backups/`. Pulumi writes a draft and renames it. A
full disk, a lost network folder or a power failure truncates a file; `kill -9` rarely does.
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
import zlib
from pathlib import Path
from typing import Any

import yaml

from commands.environment import StateBroken

ATTRIBUTES = ".attrs"
"""Suffix of the content-type file that a folder backend keeps next to each of its files. It may be missing.

https://pkg.go.dev/gocloud.dev/blob/fileblob
"""
BACKUP = ".bak"
"""Suffix of the state before the last write."""
BROKEN = ".broken"
"""Suffix of a broken state that was set aside. Pulumi reads only files that end in a format's name."""
FORMATS = (".json", ".json.gz", ".json.zst")
"""Formats of a state. PULUMI_DIY_BACKEND_GZIP and PULUMI_DIY_BACKEND_ZSTD compress it."""
_ZSTANDARD_MAGIC = b"\x28\xb5\x2f\xfd"


def folder_of(backend: str, checkout: Path) -> Path | None:
    """Return the folder of a `file://` backend; None for other backends."""
    if not backend.startswith("file://"):
        return None
    return checkout / Path(backend.removeprefix("file://").partition("?")[0]).expanduser()


def project_of(checkout: Path) -> str:
    """Return the name of the Pulumi project."""
    return str(yaml.safe_load((checkout / "Pulumi.yaml").read_text(encoding="utf-8"))["name"])


def state_file(folder: Path, project: str, stack: str) -> Path | None:
    """Return the stack's state file, the newest of several formats; None if it has none."""
    found = [path for each in FORMATS if (path := _stacks(folder, project) / f"{stack}{each}").exists()]
    return max(found, key=lambda path: path.stat().st_mtime, default=None)


def repair(folder: Path, project: str, stack: str) -> list[str]:
    """Repair the state of one stack. Return one sentence for each action.

    Replace a broken state by `.bak`, else by the newest whole backup of an earlier command. The state before the last
    write lists the resources in creation as pending, so no resource is lost. Raises StateBroken if no whole copy
    exists.
    """
    done = []
    names = [f"{stack}{each}{more}{ATTRIBUTES}" for each in FORMATS for more in ("", BACKUP)]
    for attributes in (_stacks(folder, project) / name for name in names):
        if attributes.exists() and not _is_whole(attributes):
            attributes.unlink()
            done.append(f"{attributes.name} was cut off and is removed")
    state = state_file(folder, project, stack)
    if state is None or _is_whole(state):
        return done
    copies = [Path(f"{state}{BACKUP}"), *_backups(folder, project, stack)]
    copy = next((each for each in copies if _is_whole(each)), None)
    if copy is None:
        raise StateBroken(
            f"stack {stack}: its state {state} is cut off and has no whole copy; its resources may exist and "
            "Pulumi does not know them"
        )
    shutil.copyfile(state, f"{state}{BROKEN}")
    _replace(copy, state)
    age = "before the last write" if copy == copies[0] else f"at the end of an earlier command ({copy.name})"
    done.append(f"{state.name} was cut off; using the state {age}; the broken file is kept as {state.name}{BROKEN}")
    return done


def is_broken(folder: Path, project: str, stack: str) -> bool:
    """Return True if the stack has a state that cannot be read."""
    state = state_file(folder, project, stack)
    return state is not None and not _is_whole(state)


def set_aside(folder: Path, project: str, stack: str) -> Path:
    """Rename a broken state, so that the stack counts as new. Return the new name."""
    state = state_file(folder, project, stack)
    assert state is not None, f"stack {stack} has no state"
    return state.rename(f"{state}{BROKEN}")


def pending_operations(folder: Path, project: str, stack: str) -> list[str]:
    """Return the operations that Pulumi is running, or ran when it died, such as `creating local-cluster`. Empty if
    unknown.
    """
    state = state_file(folder, project, stack)
    try:
        latest = (_content(state) if state else {})["checkpoint"]["latest"] or {}
        pending = latest.get("pending_operations") or []
        return [f"{each['type']} {each['resource']['urn'].rpartition('::')[2]}" for each in pending]
    except (OSError, ValueError, KeyError, TypeError, zlib.error, EOFError):
        return []


def _stacks(folder: Path, project: str) -> Path:
    return folder / ".pulumi" / "stacks" / project


def _backups(folder: Path, project: str, stack: str) -> list[Path]:
    """Return the states at the ends of earlier commands, newest first. Their names hold the time in nanoseconds."""
    found = [path for each in FORMATS for path in (folder / ".pulumi" / "backups" / project / stack).glob(f"*{each}")]
    return sorted(found, reverse=True)


def _replace(copy: Path, state: Path) -> None:
    """Replace the state by a copy in one step."""
    draft = state.with_name(f"{state.name}.new")
    with draft.open("wb") as file:
        file.write(copy.read_bytes())
        file.flush()
        os.fsync(file.fileno())
    draft.replace(state)


def _content(path: Path) -> dict[str, Any]:
    data = path.read_bytes()
    found: dict[str, Any] = json.loads(gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data)
    return found


def _is_whole(path: Path) -> bool:
    """Return True if the file can be read as JSON. Assume that Zstandard files are whole: Python 3.11 has no reader."""
    try:
        if path.read_bytes().startswith(_ZSTANDARD_MAGIC):
            return True
        return isinstance(_content(path), dict)
    except (OSError, ValueError, zlib.error, EOFError):
        return False
