"""`make up`: jobs that it does not follow, failed installations of packages, and printed outputs."""

from __future__ import annotations

import pytest

from commands.environment import PulumiFailed
from commands.job_results import unfollowed
from commands.up import explain_requirements_error, print_outputs
from stack.config import parse
from tests.unit.stack_settings import JOB, PLATFORM


def test_unfollowed_interactive_and_suspended_jobs_have_reasons() -> None:
    changes = {"trains": {}, "idle": {"interactive": True}, "sleeps": {"suspend": True, "interactive": True}}
    config = parse({"platform": PLATFORM, "jobs": [{**JOB, "name": name, **more} for name, more in changes.items()]})
    assert unfollowed(config) == {
        "idle": "interactive; `make exec JOB=idle RANK=0` opens a shell in a host",
        "sleeps": "suspended; `suspend: false` starts it",
    }


def failed_update(diagnostics: str) -> PulumiFailed:
    """Return the error of a failed update with these diagnostics."""
    error = PulumiFailed("`pulumi up` failed with 1")
    error.diagnostics = diagnostics
    return error


@pytest.mark.parametrize(
    ("diagnostics", "message"),
    [
        (
            "RuntimeError: requirements: uv cannot install the packages\n",
            "needs.txt: the packages cannot be installed; the reason is above; correct the file, then run `make up`",
        ),
        ("no space left on device\n", "`pulumi up` failed with 1"),
    ],
)
def test_failed_installation_of_packages_names_the_requirements_file(diagnostics: str, message: str) -> None:
    config = parse({"platform": PLATFORM, "jobs": [JOB]})
    config = config.model_copy(update={"jobs": [config.jobs[0].model_copy(update={"requirements": "needs.txt"})]})
    with pytest.raises(PulumiFailed) as raised, explain_requirements_error(config, "`make up`"):
        raise failed_update(diagnostics)
    assert str(raised.value) == message


def test_failed_installation_without_a_requirements_file_keeps_the_error() -> None:
    config = parse({"platform": PLATFORM, "jobs": [JOB]})
    with pytest.raises(PulumiFailed, match="failed with 1"), explain_requirements_error(config, "`make up`"):
        raise failed_update("requirements: x\n")


def test_print_outputs_prints_one_line_each_without_empty_values(capsys: pytest.CaptureFixture[str]) -> None:
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
