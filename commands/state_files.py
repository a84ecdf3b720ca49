"""State files of one stack in a folder backend: find, verify and repair them.

Layout: github.com/pulumi/pulumi v3.245.0, pkg/backend/diy/store.go and state.go. Before each write Pulumi copies the
state to `.bak`. After each command it copies the state to `.pulumi/backups/`. Pulumi writes a draft and renames it. A
full disk, a lost network folder or a power failure truncates a file; `kill -9` rarely does.
"""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from commands.environment import StateBroken

ATTRIBUTES_SUFFIX = ".attrs"
"""Suffix of the content-type file that a folder backend keeps next to each of its files. It may be missing.

https://pkg.go.dev/gocloud.dev/blob/fileblob
"""
BACKUP_SUFFIX = ".bak"
"""Suffix of the state before the last write."""
BROKEN_SUFFIX = ".broken"
"""Suffix of a broken state that was set aside. Pulumi reads only files that end in a format's name."""
JSON_SUFFIX = ".json"
STACK_TYPE = "pulumi:pulumi:Stack"
"""Type of the resource that has the outputs of a stack."""
SECRET_KEY = "4dabf18193072939515e22adb298388d"
"""Key of a secret value in a state.

https://github.com/pulumi/pulumi/blob/v3.245.0/sdk/go/common/resource/sig/sig.go
"""
FORMATS = (JSON_SUFFIX, ".json.gz", ".json.zst")
"""Formats of a state. PULUMI_DIY_BACKEND_GZIP and PULUMI_DIY_BACKEND_ZSTD compress it. Only JSON is repaired."""


def backend_folder(backend: str, checkout: Path) -> Path | None:
    """Return the folder of a `file://` backend; None for other backends."""
    if not backend.startswith("file://"):
        return None
    return checkout / Path(backend.removeprefix("file://").partition("?")[0]).expanduser()


def project_name(checkout: Path) -> str:
    """Return the name of the Pulumi project."""
    return str(yaml.safe_load((checkout / "Pulumi.yaml").read_text(encoding="utf-8"))["name"])


@dataclass(frozen=True)
class StateFiles:
    """State files of a stack."""

    folder: Path
    """Folder of the backend."""
    project: str
    """Name of the Pulumi project."""
    stack: str
    """Name of the stack."""

    @property
    def exists(self) -> bool:
        """True if the backend has the stack."""
        return any((self._stacks / f"{self.stack}{each}").exists() for each in FORMATS)

    @property
    def is_broken(self) -> bool:
        """True if the stack has a state that cannot be read."""
        return self._state.exists() and not _is_whole(self._state)

    def repair(self) -> list[str]:
        """Repair the state. Return one sentence for each action.

        Replace a broken state by `.bak`, else by the newest intact backup of an earlier command. The state before the
        last write lists the resources in creation as pending, so no resource is lost. Raises StateBroken if no intact
        copy exists.
        """
        done = []
        for file in (self._state, self._backup):
            attributes = Path(f"{file}{ATTRIBUTES_SUFFIX}")
            if attributes.exists() and not _is_whole(attributes):
                attributes.unlink()
                done.append(f"{attributes.name} was truncated and is removed")
        state = self._state
        if not self.is_broken:
            return done
        copies = [self._backup, *self._older_backups()]
        copy = next((each for each in copies if _is_whole(each)), None)
        if copy is None:
            raise StateBroken(
                f"stack {self.stack}: its state {state} is truncated and has no intact copy; its resources may exist "
                "and Pulumi does not know them"
            )
        shutil.copyfile(state, f"{state}{BROKEN_SUFFIX}")
        _replace(state, copy.read_bytes())
        age = "before the last write" if copy == self._backup else f"at the end of an earlier command ({copy.name})"
        kept = f"{state.name}{BROKEN_SUFFIX}"
        done.append(f"{state.name} was truncated; using the state {age}; the broken file is kept as {kept}")
        return done

    def set_aside(self) -> Path:
        """Rename a broken state, so that the stack counts as new. Return the new name."""
        return self._state.rename(f"{self._state}{BROKEN_SUFFIX}")

    def pending_operations(self) -> list[str]:
        """Return the operations that Pulumi is running, or ran when it died, such as `creating local-cluster`.

        Empty if unknown.
        """
        try:
            latest = _content(self._state)["checkpoint"]["latest"] or {}
            pending = latest.get("pending_operations") or []
            return [f"{each['type']} {each['resource']['urn'].rpartition('::')[2]}" for each in pending]
        except (OSError, ValueError, KeyError, TypeError):
            return []

    def outputs(self) -> dict[str, Any]:
        """Return the stack's outputs without secrets; empty if it is not up or its state cannot be read.

        `commands.stack.outputs` starts Pulumi, which repairs the state and reads every format.
        """
        try:
            resources = _content(self._state)["checkpoint"]["latest"]["resources"]
            found = next(each for each in resources if each["type"] == STACK_TYPE).get("outputs") or {}
        except (OSError, ValueError, KeyError, TypeError, StopIteration):
            return {}
        return {name: value for name, value in found.items() if not (isinstance(value, dict) and SECRET_KEY in value)}

    @classmethod
    def all_in(cls, folder: Path) -> list[StateFiles]:
        """Return the state files of all stacks of a folder backend, by project and name."""
        found = sorted((folder / ".pulumi" / "stacks").glob(f"*/*{JSON_SUFFIX}"))
        return [cls(folder, each.parent.name, each.name.removesuffix(JSON_SUFFIX)) for each in found]

    @property
    def _stacks(self) -> Path:
        return self.folder / ".pulumi" / "stacks" / self.project

    @property
    def _state(self) -> Path:
        return self._stacks / f"{self.stack}{JSON_SUFFIX}"

    @property
    def _backup(self) -> Path:
        return Path(f"{self._state}{BACKUP_SUFFIX}")

    def _older_backups(self) -> list[Path]:
        """Return the states at the ends of earlier commands, newest first. Their names hold the time in nanoseconds."""
        folder = self.folder / ".pulumi" / "backups" / self.project / self.stack
        return sorted(folder.glob(f"*{JSON_SUFFIX}"), reverse=True)


def _replace(file: Path, content: bytes) -> None:
    """Replace a file in one step."""
    draft = file.with_name(f"{file.name}.new")
    with draft.open("wb") as opened:
        opened.write(content)
        opened.flush()
        os.fsync(opened.fileno())
    draft.replace(file)


def _content(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(file.read_bytes())
    return found


def _is_whole(file: Path) -> bool:
    """Return True if the file can be read as JSON."""
    try:
        return isinstance(_content(file), dict)
    except (OSError, ValueError):
        return False
