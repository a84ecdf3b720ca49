"""The digits recipe reaches the documented accuracy on all 10,000 digits with its defaults."""

from __future__ import annotations

from infra.local.trainer_image import digits_folder
from setup.digits import has_digits
from tests.trainer.processes import run
from trainer.exit_codes import DONE

PROMISED = 98.5
"""Accuracy on the 2,000 test digits, in percent."""


def test_digits_recipe_with_defaults_reaches_documented_accuracy() -> None:
    assert has_digits(), "run `make setup`: it gets the digits"
    ended = run("--threads=2", data=digits_folder(), recipe="digits")
    assert ended.codes == [DONE], ended.output
    assert float(ended.events("done")[0]["test_accuracy"]) >= PROMISED, ended.output
