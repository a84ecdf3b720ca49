"""One resource's operation: the cluster it works on, how it speaks of its progress, and how it fails."""

import threading
import time
from dataclasses import dataclass, field

from setup.stand_ins.kubernetes.cluster import Cluster
from setup.stand_ins.kubernetes.objects import Object
from setup.stand_ins.protocol import Engine


class OperationFailed(Exception):
    """The operation did not happen; the message goes to the user as it is."""


class PartialFailure(Exception):
    """The object is there but not as it should be: it goes into the state as such, with the reasons."""

    def __init__(self, message: str, live: Object | None, reasons: list[str] | None = None) -> None:
        super().__init__(message)
        self.live = live
        self.reasons = reasons or []


@dataclass
class Operation:
    """Passed to everything that acts on one resource."""

    cluster: Cluster
    engine: Engine
    urn: str
    manager: str
    cancelled: threading.Event
    server_side: bool = True
    patch_force: bool = False
    upsert: bool = False
    _last_status: str = field(default="", init=False)

    def say(self, status: str, *, warning: bool = False) -> None:
        """Show what happens now in the resource's row of the display, once as long as it stays the same."""
        if status != self._last_status:
            self._last_status = status
            self.engine.status(self.urn, status, warning=warning)

    def clear_status(self) -> None:
        """Leave nothing in the resource's row."""
        self.say("")

    def warn(self, message: str) -> None:
        """Print a warning that stays."""
        self.engine.warning(self.urn, message)

    def pause(self, seconds: float) -> None:
        """Wait. Raises OperationFailed when the user cancels meanwhile."""
        if self.cancelled.wait(seconds):
            raise OperationFailed("the operation was cancelled")

    def next_look(self, seconds: float, deadline: float) -> bool:
        """Wait until it is time to look again; False when the deadline has passed or the user has cancelled."""
        remaining = deadline - time.monotonic()
        return remaining > 0 and not self.cancelled.wait(min(seconds, remaining))
