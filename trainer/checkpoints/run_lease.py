"""A lease on a run's folder, held by the run that started last.

The lease needs no release and no clock, so a crashed run cannot block its successor.
"""

from __future__ import annotations

import uuid

from trainer.exit_codes import ConfigurationError
from trainer.storage import Folder, MissingFileError

NAME = "owner"
"""File with the token of the run that holds the lease."""


class RunLease:
    """This run's claim on its folder, valid until another run acquires the folder."""

    def __init__(self, folder: Folder, node: str) -> None:
        self._folder = folder
        self._token = f"{uuid.uuid4().hex} {node}".encode()

    def acquire(self) -> None:
        """Acquire the folder. An earlier run that still exists cannot save any more."""
        self._folder.write(NAME, self._token)

    def verify(self) -> None:
        """Raise ConfigurationError if another run has acquired the folder."""
        try:
            found = self._folder.read(NAME)
        except MissingFileError:  # removed by hand: there is no other run
            return
        if found != self._token:
            node = found.decode(errors="replace").partition(" ")[2]
            raise ConfigurationError(
                f"{self._folder.url} was acquired by a run that started later, on {node}; allowed is one run of a job "
                "at a time: stop one of them, or give it another --job"
            )
