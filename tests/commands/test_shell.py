"""`make shell`: it selects the stack for Pulumi and kubectl, whatever the shell's startup files set."""

from __future__ import annotations

import copy
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from commands.environment import PROJECT, stack_environment
from commands.shell import context_file, set_up_options
from infra.local.settings import cache_folder

STACK_EXPORT: dict[str, Any] = {
    "version": 3,
    "deployment": {
        "manifest": {"time": "2026-01-01T00:00:00Z", "magic": "", "version": ""},
        "resources": [
            {
                "urn": "urn:pulumi:tests::trainyard::pulumi:pulumi:Stack::trainyard-tests",
                "type": "pulumi:pulumi:Stack",
                "outputs": {"kubeconfig_path": "/clusters/mine.kubeconfig"},
            }
        ],
    },
}


STARTUP_FILE = """
export PATH="$HOME/others:$PATH" KUBECONFIG="$HOME/another.kubeconfig"
alias kubectl=kubecolor
python() { command python2 "$@"; }
PROMPT_COMMAND='PATH="$HOME/shims:$PATH"'
"""
"""Startup file that puts other folders first on PATH, at once and before each prompt."""
KUBECONFIG = {
    "clusters": [{"name": "there", "cluster": {"server": "https://127.0.0.1:1"}}],
    "users": [{"name": "me", "user": {}}],
    "current-context": "there",
    "contexts": [{"name": "there", "context": {"cluster": "there", "user": "me"}}],
}
"""Kubeconfig with the parts that the shell reads."""
SHELLS = {name: path for name in ("bash", "dash", "zsh") if (path := shutil.which(name))}
"""Shells of this machine that have startup files."""


def shell_environment(folder: Path, shell: str = "/bin/sh") -> dict[str, str]:
    """Return the environment of `make shell`, with its own home, for a stack whose state is in `folder`."""
    home = folder.parent / "home"
    home.mkdir(exist_ok=True)
    own = {
        "PULUMI_BACKEND_URL": f"file://{folder}",
        "PULUMI_CONFIG_PASSPHRASE": "for tests",
        "SHELL": shell,
        "STACK": "tests",
        "HOME": str(home),
        "XDG_CACHE_HOME": str(cache_folder().parent),
    }
    return {name: value for name, value in os.environ.items() if name != "KUBECONFIG"} | own


def shell_output(folder: Path, *commands: str) -> list[str]:
    """Return the lines that commands print in the shell of a stack whose state is in `folder`."""
    done = subprocess.run(
        [sys.executable, "-m", "commands.shell"],
        cwd=PROJECT,
        env=shell_environment(folder),
        input="\n".join(commands),
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return done.stdout.splitlines()


def terminal_output(environment: dict[str, str], *commands: str) -> str:
    """Return the shell's output on a terminal, where it reads its startup files and shows prompts."""
    master, slave = os.openpty()
    words = [sys.executable, "-m", "commands.shell"]
    with subprocess.Popen(words, cwd=PROJECT, env=environment, stdin=slave, stdout=slave, stderr=slave) as process:
        os.close(slave)
        os.write(master, "".join(f"{command}\n" for command in (*commands, "exit")).encode())
        printed = b""
        try:
            while chunk := os.read(master, 65536):
                printed += chunk
        except OSError:
            pass  # Linux returns this error when the last process has closed the terminal.
        os.close(master)
    assert process.returncode == 0, printed
    return printed.decode(errors="replace").replace("\r", "")


def backend_of_deployed_stack(folder: Path, kubeconfig: Path, **outputs: Any) -> Path:
    """Return the backend of a stack that has these outputs, as a deployed stack does."""
    exported = copy.deepcopy(STACK_EXPORT)
    (resource,) = exported["deployment"]["resources"]
    resource["outputs"] = {"kubeconfig_path": str(kubeconfig), "namespace": "training", **outputs}
    state = folder / "deployment.json"
    state.write_text(json.dumps(exported), encoding="utf-8")
    backend = folder / "backend"
    backend.mkdir()
    shell_output(backend, f"pulumi stack import --file {state}")
    return backend


def test_shell_pulumi_selects_the_stack(tmp_path: Path) -> None:
    backend = tmp_path / "backend"
    backend.mkdir()
    assert shell_output(backend, "pulumi stack --show-name")[-1] == "tests"


def test_shell_uses_the_kubeconfig_of_the_stack(tmp_path: Path) -> None:
    backend = backend_of_deployed_stack(tmp_path, Path("/clusters/mine.kubeconfig"))
    assert shell_output(backend, "echo $KUBECONFIG")[-1] == "/clusters/mine.kubeconfig"


@pytest.mark.parametrize(("stack", "options"), [("local", []), ("dev", ["--no-cluster"]), ("none", ["--no-cluster"])])
def test_shell_sets_up_a_cluster_only_for_a_stack_on_this_machine(
    stack: str, options: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STACK", stack)
    assert set_up_options() == options


@pytest.mark.parametrize("name", ["bash", "dash", "zsh"])
def test_shell_startup_files_do_not_override_path_and_kubeconfig(tmp_path: Path, name: str) -> None:
    if name not in SHELLS:
        pytest.skip(f"{name} is not installed")
    kubeconfig = tmp_path / "there.kubeconfig"
    kubeconfig.write_text(json.dumps(KUBECONFIG), encoding="utf-8")
    environment = shell_environment(backend_of_deployed_stack(tmp_path, kubeconfig), SHELLS[name])
    for program in ("others", "shims"):
        folder = tmp_path / "home" / program
        folder.mkdir()
        for each in ("python", "pulumi", "kubectl"):
            (folder / each).write_text("#!/bin/sh\necho not the stack\n", encoding="utf-8")
            (folder / each).chmod(0o755)
    for file in (".bashrc", ".zshrc", ".shrc"):
        (tmp_path / "home" / file).write_text(STARTUP_FILE, encoding="utf-8")
    environment |= {"ENV": str(tmp_path / "home" / ".shrc")}
    commands = [f'echo "<$(command -v {each})>"' for each in ("python", "pulumi", "kubectl")]
    view = "kubectl config view --minify --output=jsonpath='<{.contexts[0].context.namespace}>'"
    printed = terminal_output(environment, *commands, 'echo "<$KUBECONFIG>"', view)
    python, pulumi, kubectl, configs, namespace = re.findall(r"<([/\w][^<>\n]*)>", printed)
    path = stack_environment()["PATH"]
    assert python == str(PROJECT / ".venv" / "bin" / "python")
    assert pulumi == shutil.which("pulumi", path=path)
    assert kubectl == shutil.which("kubectl", path=path)
    assert configs.endswith(f":{kubeconfig}")
    assert namespace == "training"


def test_context_file_without_existing_kubeconfig_is_none() -> None:
    assert context_file(["/nowhere"], None, "training") is None
