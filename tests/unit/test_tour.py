"""What the tour shows is what Trainyard takes."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import yaml

from stack_config import parse

TOUR = Path(__file__).resolve().parents[2] / "docs" / "tour.md"


def test_the_stack_of_the_tour_is_taken() -> None:
    (block,) = re.findall(r"```yaml\n(.*?)```", TOUR.read_text(encoding="utf-8"), flags=re.DOTALL)
    content = yaml.safe_load(textwrap.dedent(block))["config"]
    config = parse({key.removeprefix("trainyard:"): value for key, value in content.items()})
    (job,) = config.jobs
    assert (job.script, config.platform.kind) == ("/opt/team/train.py", "gke")
