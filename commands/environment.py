"""Environment in which `pulumi`, `kubectl` and `python` use one stack, and the errors of `pulumi` commands."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

import yaml

from commands.interrupts import CommandError
from infra.kubeconfig import PROVIDER_TMPDIR
from infra.local.settings import TAKE_OVER_VARIABLE, cache_folder, stack_cluster
from infra.project import CHECKOUT, STATE_NAME, project_folder
from setup.pulumi_cli import credentials_folder, home_with_build, path_folders

PROJECT = project_folder()
"""Folder with the settings of the stacks."""
STATE = PROJECT / STATE_NAME
"""Folder for the project's state, such as the default Pulumi backend and the passphrase of its secrets."""
PROGRAM = """\
import runpy
import sys

sys.path.insert(0, {checkout!r})
runpy.run_path({checkout!r} + "/__main__.py", run_name="__main__")
"""
"""Pulumi program of a project outside of the checkout."""
PROVIDER_FILES = STATE / "provider"
"""Temporary files of Pulumi's Kubernetes provider, in one folder for each stack."""


def passphrase_file() -> Path:
    """Return the file with the passphrase of this project's secrets. Create it at first use, for this user only.

    Do not replace a lost file while stacks exist: a new passphrase cannot decrypt their states.
    """
    path = STATE / "passphrase"
    stacks = (STATE / "pulumi" / ".pulumi" / "stacks").glob("*/*")
    if not path.exists() and not any(each.suffix in (".json", ".gz", ".zst") for each in stacks):
        STATE.mkdir(mode=0o700, exist_ok=True)
        path.touch(mode=0o600)
        path.write_text(secrets.token_urlsafe(32), encoding="ascii")
    return path


def program_folder() -> Path:
    """Return the folder with Pulumi's program and `Pulumi.yaml`.

    For a project outside of the checkout, generate the folder. Its `Pulumi.yaml` names the folder of the stacks'
    settings. Pulumi runs no program outside of the folder of `Pulumi.yaml`, so the program in the generated folder runs
    the checkout's program.
    """
    if PROJECT == CHECKOUT:
        return CHECKOUT
    folder = STATE / "program"
    settings = yaml.safe_load((CHECKOUT / "Pulumi.yaml").read_text(encoding="utf-8"))
    settings["runtime"]["options"]["virtualenv"] = str(CHECKOUT / ".venv")
    settings["stackConfigDir"] = os.path.relpath(PROJECT, folder)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for file, text in (
        (STATE / ".gitignore", "*\n"),
        (folder / "Pulumi.yaml", yaml.safe_dump(settings, sort_keys=False)),
        (folder / "__main__.py", PROGRAM.format(checkout=str(CHECKOUT))),
    ):
        if not file.exists() or file.read_text(encoding="utf-8") != text:
            file.write_text(text, encoding="utf-8")
    return folder


def stack_environment() -> dict[str, str]:
    """Return the environment variables for the stack's programs. Keep a backend or passphrase that the user has set."""
    environment = dict(os.environ)
    cli, after = path_folders(CHECKOUT)
    before = [CHECKOUT / ".venv" / "bin", *cli, cache_folder() / "bin" / "kubernetes"]
    path = [str(folder) for folder in before] + [environment["PATH"]] + [str(folder) for folder in after]
    environment["PATH"] = os.pathsep.join(path)
    if home := home_with_build(CHECKOUT):
        environment["PULUMI_HOME"] = str(home)
        if folder := credentials_folder():
            environment.setdefault("PULUMI_CREDENTIALS_PATH", str(folder))
    if "PULUMI_BACKEND_URL" not in environment:
        (STATE / "pulumi").mkdir(parents=True, exist_ok=True)
        environment["PULUMI_BACKEND_URL"] = f"file://{STATE / 'pulumi'}"
    if not {"PULUMI_CONFIG_PASSPHRASE", "PULUMI_CONFIG_PASSPHRASE_FILE"} & environment.keys():
        environment["PULUMI_CONFIG_PASSPHRASE_FILE"] = str(passphrase_file())
    # Without a secrets provider in Pulumi.<stack>.yaml, use the state's, so that Pulumi does not edit the file.
    environment.setdefault("PULUMI_FALLBACK_TO_STATE_SECRETS_MANAGER", "true")
    environment.setdefault("PULUMI_SKIP_UPDATE_CHECK", "true")
    # Except in Go, gRPC clients use the proxy of `http_proxy` even to reach Pulumi's engine on this machine.
    environment.setdefault("no_grpc_proxy", "127.0.0.1")
    environment[TAKE_OVER_VARIABLE] = "true"
    stack = environment.get("STACK", "local")
    (PROVIDER_FILES / stack).mkdir(mode=0o700, parents=True, exist_ok=True)
    environment[PROVIDER_TMPDIR] = str(PROVIDER_FILES / stack)
    cluster = stack_cluster(str(PROJECT), stack)
    # Set KUBECONFIG even if the file is missing: kubectl must not use the cluster of ~/.kube/config.
    if "KUBECONFIG" not in environment and cluster.folder.exists():
        environment["KUBECONFIG"] = str(cluster.kubeconfig)
    return environment


class PulumiFailed(CommandError):
    """Failure of a `pulumi` command, whose error is on the screen or in the message."""

    diagnostics: str = ""
    """Error diagnostics of the command; empty if the screen shows all of its output."""


class PassphraseRejected(PulumiFailed):
    """Missing or wrong passphrase of a stack. Pulumi has changed nothing."""


class StackBusy(PulumiFailed):
    """Stack that another command changes or may change."""


class StateBroken(PulumiFailed):
    """State of a stack that Pulumi cannot read and that Trainyard cannot repair."""
