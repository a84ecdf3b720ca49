"""`make shell`: the user's shell with the stack's python, pulumi, kubectl and namespace."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from commands.environment import PROJECT, STATE, stack_environment
from commands.shell_files import context_file, start_files
from commands.stack import PulumiFailed, ensure_stack, kubeconfig_of, outputs
from infra.make_command import make_command


def main() -> None:
    """Replace this process by the shell."""
    stack = os.environ.get("STACK", "local")
    try:
        ensure_stack(stack)
        found = outputs(stack)
        kubeconfig = kubeconfig_of(stack, found)
    except PulumiFailed as error:
        sys.exit(f"make shell: {error}")
    environment = {**stack_environment(), "TRAINYARD_SHELL": stack, "PULUMI_STACK": stack}
    folder = STATE / "shell" / stack
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    where = f"the stack is not up, so kubectl has no cluster of it; {make_command('up')} starts it"
    if kubeconfig:
        namespace, context = str(found.get("namespace") or "default"), found.get("context")
        environment["KUBECONFIG"] = with_namespace(kubeconfig, context, namespace, folder / "kubeconfig")
        where = f"kubectl is in its namespace {namespace}"
    shell = environment.get("SHELL") or "/bin/sh"
    words, more = start_files(shell, folder, environment, os.environ)
    print(f"shell of stack {stack}: python and pulumi are the stack's, {where}; `exit` leaves it", flush=True)
    os.chdir(PROJECT)
    try:
        os.execve(shell, words, {**environment, **more})
    except OSError as error:
        sys.exit(f"make shell: SHELL = {shell}: {error.strerror}; set SHELL to a shell of this machine")


def with_namespace(kubeconfig: str, context: str | None, namespace: str, file: Path) -> str:
    """Return the value of $KUBECONFIG that gives kubectl this default namespace.

    `file` gets the context and comes first, because kubectl takes each context from the first file that has it:
    https://kubernetes.io/docs/concepts/configuration/organize-cluster-access-kubeconfig/#merging-kubeconfig-files
    """
    text = context_file(kubeconfig.split(os.pathsep), context, namespace)
    if text is None:
        return kubeconfig
    file.touch(mode=0o600)
    file.write_text(text, encoding="utf-8")
    return f"{file}{os.pathsep}{kubeconfig}"


if __name__ == "__main__":
    main()
