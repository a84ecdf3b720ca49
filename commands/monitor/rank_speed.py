"""Speed of each rank of a job compared with the others, from the last `train` event of each. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median
from typing import Any

SLOW = 1 / 1.5
"""Speed below which a rank is a straggler, as in the trainer's watchdog."""

Event = Mapping[str, Any]


def seconds_per_unit(event: Event) -> float | None:
    """Return the seconds of a rank's own part of a sample or token: without the wait for the others' gradients.

    All ranks of a job take the same steps, so that their rates are equal. A slow rank is the one that waits least.
    """
    rate, waited = event.get("rate"), event.get("all_reduce")
    if not isinstance(rate, int | float) or rate <= 0:
        return None
    share = waited / 100 if isinstance(waited, int | float) and 0 <= waited < 100 else 0.0
    return (1 - share) / rate


def speeds(latest: Mapping[int, Event]) -> dict[int, float]:
    """Return rank -> speed, as a ratio to the median of all ranks: 0.5 for a rank that takes twice as long."""
    own = {rank: seconds for rank, event in latest.items() if (seconds := seconds_per_unit(event))}
    if not own:
        return {}
    usual = median(own.values())
    return {rank: usual / seconds for rank, seconds in own.items()}
