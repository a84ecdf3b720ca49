"""Folder, port and settings of a rehearsal: concurrent rehearsals have different ports and names."""

from __future__ import annotations

import fcntl
import subprocess
import sys
from pathlib import Path

import pytest

from commands.interrupts import ExitStatus
from commands.rehearse import __main__ as command
from commands.rehearse.folder import SECRET_PLACEHOLDER, cluster_settings, rehearsal_lock, reserve_port, write_settings
from commands.rehearse.run import SETTINGS, Rehearsal, Subject
from infra.local.lifecycle import listen
from infra.local.settings import ClusterSettings
from infra.make_command import COMMAND_VARIABLE
from stack.config import load_file

ROOT = Path(__file__).resolve().parents[2]


def test_reserve_port_differs_by_process_and_name() -> None:
    mine = reserve_port("mine")
    words = [sys.executable, "-c", "from commands.rehearse.folder import reserve_port; print(reserve_port('mine'))"]
    other = int(subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout)
    assert mine not in (other, reserve_port("another"))
    assert mine == reserve_port("mine"), "a rehearsal of the same name must get the same port"
    # The cluster is another process, and it reopens the port when it restarts.
    words = [sys.executable, "-c", f"from infra.local.lifecycle import listen; listen({mine})"]
    for _ in range(2):
        subprocess.run(words, cwd=ROOT, check=True)


def test_reserve_port_skips_a_port_in_use() -> None:
    port = reserve_port("one")
    with listen(port):
        assert reserve_port("two") != port


def test_cluster_settings_use_the_given_port() -> None:
    assert cluster_settings("some", 17000).port == 17000


def test_rehearsal_lock_rejects_a_name_in_use(tmp_path: Path) -> None:
    with (
        rehearsal_lock(tmp_path / "rehearsal"),
        pytest.raises(RuntimeError, match="`make rehearse NAME=another`"),
        rehearsal_lock(tmp_path / "rehearsal"),
    ):
        pass


def test_rehearsal_lock_that_another_process_waits_for_stays_exclusive(tmp_path: Path) -> None:
    folder = tmp_path / "rehearsal"
    with rehearsal_lock(folder):
        # This handle stands in for another process that has opened the lock's file.
        waiting = folder.with_name("rehearsal.lock").open("w", encoding="ascii")
    fcntl.flock(waiting, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with waiting, pytest.raises(RuntimeError, match="already running"), rehearsal_lock(folder):
        pass


def test_write_settings_quotes_texts_that_look_like_numbers(tmp_path: Path) -> None:
    # PyYAML would write these texts without quotes, and Pulumi would read 1000 and 8.
    file, copy = tmp_path / "Pulumi.test.yaml", tmp_path / "Pulumi.copy.yaml"
    job = "{name: a, recipe: digits, resources: {cpu: 1m, memory: 1Gi}, environment: {A: '1e3', B: '08', C: ä}}"
    file.write_text(f"config: {{trainyard:platform: {{kind: local}}, trainyard:jobs: [{job}]}}", encoding="utf-8")
    assert write_settings(file, copy) == []
    assert '"A": "1e3"' in copy.read_text(encoding="utf-8")
    for each in (file, copy):
        assert load_file(each).jobs[0].environment == {"A": "1e3", "B": "08", "C": "ä"}


def test_encrypted_settings_become_secrets_that_the_program_accepts(tmp_path: Path) -> None:
    file, folder = tmp_path / "Pulumi.test.yaml", tmp_path / "rehearsal"
    job = "{name: a, recipe: digits, resources: {cpu: 1m, memory: 1Gi}, secrets: {WANDB_API_KEY: wandb}}"
    text = f"config: {{trainyard:platform: {{kind: local}}, trainyard:jobs: [{job}], secrets:wandb: {{secure: v1:b}}}}"
    file.write_text(text, encoding="utf-8")
    folder.mkdir()
    subject = Subject(stack="test", project=ROOT, settings=file, jobs={})
    rehearsal = Rehearsal(subject=subject, folder=folder, cluster=ClusterSettings(name="test"), verbose=False)
    rehearsal._create_stack()
    assert load_file(folder / SETTINGS).jobs[0].secrets == {"WANDB_API_KEY": "wandb"}
    written = (folder / SETTINGS).read_text(encoding="utf-8")
    assert "v1:b}" not in written
    assert SECRET_PLACEHOLDER not in written, "the placeholder must be encrypted"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--fault", "foo"], "--fault foo: must be one of stockout:RESOURCE, "),
        (["--quota", "foo"], "--quota foo: must be NAME=LIMIT, "),
        (["--name", "../clusters"], "--name ../clusters: must have only letters, "),
        (["--name", "/srv"], "--name /srv: must have only letters, "),
        (["--name", ""], "--name : must have only letters, "),
        (["--page", "/none/page.html"], "--page /none/page.html: its folder does not exist; "),
    ],
)
def test_wrong_option_is_rejected_before_the_rehearsal(
    words: list[str], message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(COMMAND_VARIABLE, "trainyard")
    monkeypatch.setattr(command, "_set_up", lambda *_words: 1)
    assert command.main(["dev", *words]) == ExitStatus.USAGE
    assert capsys.readouterr().err.startswith(message)
