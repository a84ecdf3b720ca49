"""Archive for a bug report: its files, masked secrets, and stacks without a cluster."""

from __future__ import annotations

import tarfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from commands import doctor, pulumi_output
from commands.doctor import MASK, Finding, mask, without_secrets
from commands.environment import PulumiFailed
from commands.interrupts import CommandError
from commands.monitor.cluster import StackOutputs, UnknownStack, Unreachable
from commands.monitor.pod_state import PodState
from commands.status import Snapshot

AWS_KEY = "AKIA" + "Q" * 16
# These texts are concatenated to hide them from detect-secrets.
WEB_TOKEN = ".".join(("ey" + "JhbGciOiJSUzI1NiJ9", "ey" + "Jpc3MiOiJrdWJlIn0", "c2lnbmF0dXJl"))
KEY_LABEL = "RSA PRIVATE " + "KEY-----"
PASSWORD = "correct-horse-7"


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        (f"key {AWS_KEY} used", AWS_KEY),
        (f"Authorization: Bearer {WEB_TOKEN}", WEB_TOKEN),
        (f"DB_PASSWORD={PASSWORD} started", PASSWORD),
        (f'{{"password": "{PASSWORD}"}}', PASSWORD),
        (f'password: "two {PASSWORD}"', PASSWORD),
        (f'{{\\"password\\": \\"two {PASSWORD}\\"}}', PASSWORD),
        (f"DB_PASSWORD=a,b;{PASSWORD}", PASSWORD),
        (f"DB_PASSWORD='two {PASSWORD}", PASSWORD),
        (f"get https://example.com/x?page=1&api_key={PASSWORD}", PASSWORD),
        (f"Authorization: Basic {PASSWORD}", PASSWORD),
        (f"-----BEGIN {KEY_LABEL}\nMIIabc\n-----END {KEY_LABEL}", "MIIabc"),
        ("https://me:" + "hunter22@example.com/x", "hunter22"),
    ],
)
def test_mask_removes_secrets(text: str, secret: str) -> None:
    assert secret not in mask(text)
    assert MASK in mask(text)


@pytest.mark.parametrize(
    "text",
    [
        "train epoch=1 step=20/63 loss=1.8",
        "image trainer:5b70b12a3a086e2e",
        "PAD_TOKEN=<pad>",
        "a=b=c: d",
        'x: "y=1" ok',
    ],
)
def test_mask_keeps_other_text(text: str) -> None:
    assert mask(text) == text


def test_without_secrets_masks_encrypted_and_named_values() -> None:
    found = without_secrets(
        {
            "secrets:wandb": {"secure": "v1:abc"},
            "encryptionsalt": "v1:salt",
            "outputs": [{"kubeconfig": "apiVersion: v1", "jobs": ["digits"]}],
            "environment": {"API_KEY": "a1b2c3d4e5f6a7b8c9d0", "EPOCHS": "3"},
            "env": [{"name": "DB_PASSWORD", "value": PASSWORD}, {"name": "EPOCHS", "value": "3"}],
        }
    )
    assert found == {
        "secrets:wandb": {"secure": MASK},
        "encryptionsalt": MASK,
        "outputs": [{"kubeconfig": MASK, "jobs": ["digits"]}],
        "environment": {"API_KEY": MASK, "EPOCHS": "3"},
        "env": [{"name": "DB_PASSWORD", "value": MASK}, {"name": "EPOCHS", "value": "3"}],
    }


POD = PodState(uid="1", name="digits-0-x", job="digits", index=0, processes=1, node="local-0", state="failed")


def set_stack(monkeypatch: pytest.MonkeyPatch, folder: Path, cluster: Any) -> None:
    """Replace the stack that `doctor` reads with a stack whose settings, state, logs and diagnosis contain secrets."""
    (folder / "Pulumi.dev.yaml").write_text(
        f"encryptionsalt: v1:salt\nconfig:\n  aws:secretKey: {AWS_KEY}\n", encoding="utf-8"
    )
    (folder / "local" / "logs").mkdir(parents=True)
    (folder / "local" / "logs" / "etcd.log").write_text(f"token={WEB_TOKEN}\n", encoding="utf-8")
    logs = folder / ".trainyard" / "logs" / "dev"
    logs.mkdir(parents=True)
    (logs / "20260101-000000-up.log").write_text(f"error: {AWS_KEY} is not valid\n", encoding="utf-8")
    monkeypatch.setattr(pulumi_output, "STATE", folder / ".trainyard")
    outputs = {"kubeconfig_path": "/k", "namespace": "training", "jobs": ["digits"], "kubeconfig": "secret text"}
    monkeypatch.setattr(doctor, "PROJECT", folder)
    monkeypatch.setattr(doctor, "outputs", lambda _stack: outputs)
    invalid = Finding(name="stack dev", state="error", found="settings are invalid", remedy=f"{AWS_KEY} is unknown")
    monkeypatch.setattr(doctor, "findings", lambda _folder: [invalid])
    monkeypatch.setattr(doctor, "stack_cluster", lambda *_names: SimpleNamespace(folder=folder / "local"))
    monkeypatch.setattr(StackOutputs, "cluster", lambda _self: cluster)

    def pulumi(*words: str, **_options: Any) -> str:
        if words[1] == "history":
            raise PulumiFailed("no history")
        return '{"deployment": {"resources": [{"inputs": {"password": {"ciphertext": "v1:abc"}}}]}}'

    monkeypatch.setattr(doctor, "pulumi", pulumi)
    monkeypatch.setenv("STACK", "dev")


def archive_files(folder: Path) -> dict[str, str]:
    """Return the files of the archive by name, without its top folder."""
    assert doctor.bundle(folder / "b.tar.gz") == 0
    with tarfile.open(folder / "b.tar.gz") as archive:
        return {
            member.name.partition("/")[2]: opened.read().decode()
            for member in archive
            if (opened := archive.extractfile(member))
        }


def test_bundle_has_every_part_without_secrets(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    cluster = SimpleNamespace(
        events=lambda: [{"reason": "BackOff", "message": f"pull with {AWS_KEY}"}],
        pods=lambda _jobs: [POD],
        log=lambda _pod, _lines: ["train step=1", f"API_TOKEN={WEB_TOKEN}"],
    )
    snapshot = Snapshot(nodes=[("local-0 ready", True)], nodes_problem="", advice="", jobs=[], rows=[])
    monkeypatch.setattr("commands.status.take_snapshot", lambda *_words: snapshot)
    set_stack(monkeypatch, tmp_path, cluster)
    found = archive_files(tmp_path)
    assert sorted(found) == [
        "Pulumi.dev.yaml",
        "cluster/events.json",
        "cluster/status.json",
        "doctor.json",
        "history.json",
        "local/logs/etcd.log",
        "logs/digits/digits-0-x.log",
        "outputs.json",
        "pulumi/20260101-000000-up.log",
        "state.json",
        "versions.json",
    ]
    assert found["pulumi/20260101-000000-up.log"].startswith("error: ")
    assert "train step=1" in found["logs/digits/digits-0-x.log"]
    assert "BackOff" in found["cluster/events.json"]
    assert found["history.json"] == "cannot be read: no history\n"
    everything = "\n".join(found.values())
    for secret in (AWS_KEY, WEB_TOKEN, "v1:abc", "v1:salt", "secret text"):
        assert secret not in everything


def test_bundle_into_a_missing_folder_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=r"cannot be written .*; name another file with `--output`"):
        doctor.bundle(tmp_path / "missing" / "b.tar.gz")


def test_bundle_of_an_unknown_stack_writes_no_archive(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    set_stack(monkeypatch, tmp_path, SimpleNamespace())
    monkeypatch.setenv("STACK", "nosuch")
    with pytest.raises(UnknownStack, match=r"Pulumi\.nosuch\.yaml: no such file; .* has the stacks: dev; name one"):
        doctor.bundle(tmp_path / "b.tar.gz")
    assert not (tmp_path / "b.tar.gz").exists()


def test_bundle_of_a_stack_without_a_settings_file_writes_the_archive(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    set_stack(monkeypatch, tmp_path, SimpleNamespace(events=lambda: [], pods=lambda _jobs: []))
    monkeypatch.setenv("STACK", "nosuch")
    monkeypatch.setattr(doctor, "stack_exists", lambda _stack: True)
    snapshot = Snapshot(nodes=[], nodes_problem="", advice="", jobs=[], rows=[])
    monkeypatch.setattr("commands.status.take_snapshot", lambda *_words: snapshot)
    found = archive_files(tmp_path)
    assert "state.json" in found
    assert found["Pulumi.nosuch.yaml"].startswith("cannot be read: ")


def test_bundle_without_a_cluster_has_the_reason(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fail(*_words: Any) -> None:
        raise Unreachable("the API server does not answer")

    monkeypatch.setattr("commands.status.take_snapshot", fail)
    set_stack(monkeypatch, tmp_path, SimpleNamespace())
    found = archive_files(tmp_path)
    assert "the API server does not answer" in found["cluster/problem.txt"]
    assert "state.json" in found
