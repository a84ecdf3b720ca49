"""Credentials of the clouds on this machine: found, missing, or rejected by the cloud's command."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from commands import confirmation
from commands.confirmation import missing_credentials


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the home folder of a machine outside of the clouds, without `gcloud` and `aws`."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(confirmation, "PRODUCT_FILE", tmp_path / "product")
    monkeypatch.setattr(confirmation, "VENDOR_FILE", tmp_path / "vendor")
    (tmp_path / "bin").mkdir()
    return tmp_path


def add_program(machine: Path, name: str, script: str) -> None:
    """Add a program to the machine's PATH."""
    file = machine / "bin" / name
    file.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    file.chmod(file.stat().st_mode | stat.S_IXUSR)


def add_login(machine: Path, scheme: str) -> dict[str, str]:
    """Create a cloud's login file. Return the environment of the user."""
    name = {"gs": ".config/gcloud/application_default_credentials.json", "s3": ".aws/config"}[scheme]
    (machine / name).parent.mkdir(parents=True)
    (machine / name).touch()
    return {"HOME": str(machine)}


@pytest.mark.parametrize(
    ("scheme", "remedy"),
    [("gs", "`gcloud auth login` and `gcloud auth application-default login`"), ("s3", "`aws sso login`")],
)
def test_machine_without_credentials_names_the_login_command(machine: Path, scheme: str, remedy: str) -> None:
    found = missing_credentials(scheme, {"HOME": str(machine)})
    assert found.startswith("this machine has no credentials for ")
    assert remedy in found


@pytest.mark.parametrize("scheme", ["gs", "s3"])
def test_login_of_the_user_without_the_clouds_command_is_accepted(machine: Path, scheme: str) -> None:
    assert missing_credentials(scheme, add_login(machine, scheme)) == ""


@pytest.mark.parametrize(("scheme", "program"), [("gs", "gcloud"), ("s3", "aws")])
def test_login_that_the_cloud_rejects_names_its_reason(machine: Path, scheme: str, program: str) -> None:
    environment = add_login(machine, scheme)
    add_program(machine, program, "echo 'first line' >&2; echo 'token is expired' >&2; exit 1")
    found = missing_credentials(scheme, environment)
    assert "does not accept the credentials (first line token is expired); run `" in found
    add_program(machine, program, "exit 0")
    assert missing_credentials(scheme, environment) == ""


@pytest.mark.parametrize(
    ("scheme", "file", "text"), [("gs", "product", "Google Compute Engine"), ("s3", "vendor", "Amazon EC2")]
)
def test_machine_in_the_cloud_needs_no_login(machine: Path, scheme: str, file: str, text: str) -> None:
    (machine / file).write_text(f"{text}\n", encoding="utf-8")
    assert missing_credentials(scheme, {"HOME": str(machine)}) == ""


def test_missing_key_file_is_named_until_it_exists(machine: Path) -> None:
    found = missing_credentials("gs", {"GOOGLE_APPLICATION_CREDENTIALS": str(machine / "key.json")})
    assert found.startswith(f"GOOGLE_APPLICATION_CREDENTIALS = {machine}/key.json: no such file")
    (machine / "key.json").touch()
    assert missing_credentials("gs", {"GOOGLE_APPLICATION_CREDENTIALS": str(machine / "key.json")}) == ""


def test_impersonation_that_the_plugin_of_the_kubeconfig_ignores_is_an_error(machine: Path) -> None:
    (machine / "key.json").touch()
    variables = {"GOOGLE_APPLICATION_CREDENTIALS": str(machine / "key.json")}
    found = missing_credentials("gs", {**variables, "GOOGLE_IMPERSONATE_SERVICE_ACCOUNT": "a@b.example"})
    assert found.endswith("gcloud auth application-default login --impersonate-service-account=a@b.example")


def test_variable_that_the_plugin_of_the_kubeconfig_does_not_read_is_not_a_login(machine: Path) -> None:
    found = missing_credentials("gs", {"HOME": str(machine), "GOOGLE_CREDENTIALS": "{}"})
    assert found.startswith("this machine has no credentials for Google Cloud")
