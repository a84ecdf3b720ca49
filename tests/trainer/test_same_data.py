"""Ranks with different data are rejected, because their steps would not match."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trainer.components import check_same_data
from trainer.config import DigitsConfig
from trainer.data.datasets import Digits
from trainer.exit_codes import DataError
from trainer.runtime import Runtime


@pytest.mark.parametrize(("name", "more"), [("training samples", 1), ("test samples", -1), ("classes", 1)])
def test_different_data_on_another_host_is_rejected(
    name: str, more: int, digits: Path, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = Digits(DigitsConfig(data_dir=str(digits)), runtime.device)
    check_same_data(data, runtime)

    def gather(mine: dict[str, Any]) -> list[dict[str, Any]]:
        return [mine, mine, {**mine, name: mine[name] + more}]

    monkeypatch.setattr(runtime, "gather", gather)
    with pytest.raises(DataError, match=rf"^rank 2 has \d+ {name}, and rank 0 has \d+; allowed is the same data"):
        check_same_data(data, runtime)
