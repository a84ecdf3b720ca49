"""What `make up` shows of a stack's outputs."""

import pytest

from commands.up import print_outputs


def test_outputs_are_shown_one_a_line_without_what_is_empty(capsys: pytest.CaptureFixture[str]) -> None:
    print_outputs(
        {
            "jobs": ["digits", "other"],
            "console": {},
            "image": "trainer:1",
            "run_records": {"digits": {"chips": 0, "accelerator": None, "pools": [], "plan": "sha256:1"}},
        }
    )
    assert capsys.readouterr().out.splitlines()[1:] == [
        "Outputs of the stack:",
        "  image: trainer:1",
        "  jobs: digits, other",
        "  run_records:",
        "    digits:",
        "      chips: 0",
        "      plan: sha256:1",
    ]
