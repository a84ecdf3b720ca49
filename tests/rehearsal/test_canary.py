"""Settings, preview, pods, reports and state have no secret in plain text (real engine, no cluster)."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from datetime import date
from pathlib import Path

import pytest
import yaml

from commands.rehearse.folder import environment
from commands.review.plan import Step, steps_of
from commands.review.report import Report, as_json, markdown
from commands.stack import settings_without_salt
from simulation.cloud.model import new_state
from stack.config import CONFIG_NAMESPACE, load_file
from tests.canary import CANARY, leaks
from tests.rehearsal.simulated_stack import ROOT, SimulatedStack

STACK = "canary"


class Preview:
    """Preview of the whole program with a secret, by the real engine, in a separate folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.settings = folder, folder / "settings.yaml"
        new_state(folder)
        content = yaml.safe_load((ROOT / "Pulumi.dev.yaml").read_text(encoding="utf-8"))
        content["config"][f"{CONFIG_NAMESPACE}:jobs"][0]["secrets"] = {"WANDB_API_KEY": "wandb"}
        self.settings.write_text(yaml.safe_dump(content), encoding="utf-8")
        self.pulumi("stack", "init", STACK)
        self.pulumi("config", "set", "--secret", "secrets:wandb", CANARY, *self._options)
        self.text = self.pulumi("preview", "--json", "--show-sames", *self._options)

    @property
    def _options(self) -> tuple[str, ...]:
        return ("--stack", STACK, "--config-file", str(self.settings))

    def pulumi(self, *words: str) -> str:
        """Run a Pulumi command, which must succeed, and return its output."""
        with settings_without_salt():
            done = subprocess.run(
                ["pulumi", *words, "--non-interactive"],
                cwd=ROOT,
                env=environment(self.folder),
                capture_output=True,
                text=True,
                timeout=900,
                check=False,
            )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    @property
    def steps(self) -> list[Step]:
        """Steps of the preview."""
        return steps_of(self.text[: self.text.rindex("}") + 1])


@pytest.fixture(scope="module")
def preview(tmp_path_factory: pytest.TempPathFactory) -> Preview:
    """Return the preview of stack `dev` with a secret."""
    return Preview(tmp_path_factory.mktemp("canary"))


def test_settings_and_preview_have_no_secret(preview: Preview) -> None:
    assert leaks(preview.settings.read_text(encoding="utf-8"), preview.text) == []
    stored = [path for path in preview.folder.rglob("*") if path.is_file()]
    assert leaks(*(path.read_text(encoding="utf-8", errors="replace") for path in stored)) == []


def test_pod_refers_to_the_secret(preview: Preview) -> None:
    (job,) = [step for step in preview.steps if step.type == "kubernetes:batch/v1:Job"]
    (container,) = job.inputs["spec"]["template"]["spec"]["containers"]
    (variable,) = [each for each in container["env"] if each["name"] == "WANDB_API_KEY"]
    assert "value" not in variable
    assert variable["valueFrom"]["secretKeyRef"]["name"] == "tiny-imagenet-secrets"


def test_report_has_no_secret(preview: Preview) -> None:
    config = load_file(preview.settings)
    report = Report(
        stack=STACK, after=config, before=None, steps=preview.steps, is_from_engine=True, findings=[], running={}
    )
    today = date(2026, 11, 21)
    assert leaks(markdown(report, today), json.dumps(as_json(report, today))) == []


def test_state_has_no_secret(new_stack: Callable[[str], SimulatedStack]) -> None:
    stack = new_stack("""
import pulumi_gcp as gcp
on = {"project": "some-project"}
api = gcp.projects.Service("storage", service="storage.googleapis.com", **on)
gcp.storage.Bucket("bucket", location="US", force_destroy=True, uniform_bucket_level_access=True,
    public_access_prevention="enforced", labels={"key": pulumi.Config("secrets").require_secret("wandb")},
    opts=ResourceOptions(depends_on=[api]), **on)
""")
    stack.run("config", "set", "--secret", "secrets:wandb", CANARY)
    shown = stack.up()
    assert len(stack.clouds.resources) == 2
    assert leaks(shown, stack.run("stack", "export")) == []
    stored = [path for path in (stack.folder / "backend").rglob("*") if path.is_file()]
    assert any("Bucket" in path.read_text(encoding="utf-8", errors="replace") for path in stored)
    assert leaks(*(path.read_text(encoding="utf-8", errors="replace") for path in stored)) == []
    stack.destroy()
