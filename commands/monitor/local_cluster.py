"""Local cluster facts that its API cannot report: the programs that ended, and its running processes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from infra.local import leftovers
from infra.local.settings import ClusterSettings

_END = re.compile(rb"^(?P<time>\d\d:\d\d:\d\d) (?P<name>\S+) ended with (?P<code>-?\d+) after .*$", re.MULTILINE)
"""Line of infra/local/supervisor.py for a program that ended and starts again."""


@dataclass(frozen=True, kw_only=True)
class ProgramEnd:
    """A program of the cluster that ended. Its supervisor starts it again."""

    time: str
    """Time of day on this machine."""
    name: str
    """Name of the program, or of the node if all of a node ended."""
    node: str
    """Node that it belongs to, or is; empty for the control plane."""
    code: int
    """Exit code; negative, or 128 more than its number, for a signal."""

    def __str__(self) -> str:
        if self.name == self.node:
            lost = "with the hosts on it, which restart as their jobs' `restarts` allow"
            return f"node {self.name} ended at {self.time} {lost}; the node starts again"
        place = f" of {self.node}" if self.node else ""
        signal = -self.code if self.code < 0 else self.code - 128
        how = f"signal {signal}" if signal > 0 else f"exit code {self.code}"
        return f"{self.name}{place} ended at {self.time} ({how}) and starts again"


class LocalCluster:
    """The processes and logs of one local cluster."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._name = ClusterSettings.load(folder).name
        self._offsets = {log: log.stat().st_size for log in self._logs()}

    @classmethod
    def of_kubeconfig(cls, path: str) -> LocalCluster | None:
        """Return the local cluster that a kubeconfig belongs to; None for another cluster."""
        folder = Path(path).parent.parent
        return cls(folder) if (folder / "settings.json").is_file() else None

    def is_removed(self) -> bool:
        """Return True if the cluster's folder is gone, as after `make down`."""
        return not (self._folder / "settings.json").exists()

    def has_processes(self) -> bool:
        """Return True if any process of the cluster runs."""
        return bool(leftovers.processes(self._folder))

    def program_ends(self) -> list[ProgramEnd]:
        """Return the programs that ended since the last call, or since this object was created."""
        found = []
        for log in self._logs():
            try:
                with log.open("rb") as file:
                    file.seek(self._offsets.get(log, 0))
                    text = file.read()
            except FileNotFoundError:
                continue  # `make down` removed it after it was listed.
            whole = text[: text.rfind(b"\n") + 1]
            self._offsets[log] = self._offsets.get(log, 0) + len(whole)
            node = self._node_of(log)
            found += [self._program_end(match, node) for match in _END.finditer(whole)]
        return sorted(found, key=lambda end: end.time)

    def _logs(self) -> list[Path]:
        """Return the logs of the supervisors: the control plane's and each node's."""
        return [log for log in (self._folder / "cluster.log", *self._folder.glob("node-*/node.log")) if log.exists()]

    def _node_of(self, log: Path) -> str:
        """Return the name of the node whose log it is; empty for the control plane's log."""
        return "" if log.parent == self._folder else f"{self._name}-{log.parent.name.removeprefix('node-')}"

    def _program_end(self, match: re.Match[bytes], node: str) -> ProgramEnd:
        time, name, code = (match[group].decode() for group in ("time", "name", "code"))
        is_node = re.fullmatch(rf"{re.escape(self._name)}-\d+", name) is not None
        return ProgramEnd(time=time, name=name, node=name if is_node else node, code=int(code))
