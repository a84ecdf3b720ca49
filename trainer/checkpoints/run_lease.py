"""Which run saves into a folder: the one that was started last.

Nobody has to give a folder back, so that no run that is gone keeps another from it; and no clock is compared.
"""

from __future__ import annotations

import uuid

from trainer.exit_codes import ConfigurationError
from trainer.storage import Folder, MissingFileError

NAME = "owner"


class Owner:
    """This run, as the owner of its folder until another one takes it."""

    def __init__(self, folder: Folder, node: str) -> None:
        self._folder = folder
        self._mine = f"{uuid.uuid4().hex} {node}".encode()

    def take(self) -> None:
        """Begin to own the folder: a run before this one, should it still be there, saves nothing more."""
        self._folder.write(NAME, self._mine)

    def check(self) -> None:
        """Raises ConfigurationError where another run has taken the folder."""
        try:
            found = self._folder.read(NAME)
        except MissingFileError:  # removed by hand: nobody else wants it
            return
        if found != self._mine:
            node = found.decode(errors="replace").partition(" ")[2]
            raise ConfigurationError(
                f"{self._folder.url} was taken by a run that was started later, on {node}; allowed is one run of a job "
                "at a time: end one of them, or give it another --job"
            )
