"""`make shell`: the user's shell with the stack's environment."""

from __future__ import annotations

import os

from commands.environment import PROJECT, stack_environment
from commands.stack import ensure_stack, kubeconfig_of, outputs


def main() -> None:
    """Replace this process by the shell."""
    stack = os.environ.get("STACK", "local")
    ensure_stack(stack)
    environment = stack_environment()
    if "KUBECONFIG" not in environment and (kubeconfig := kubeconfig_of(stack, outputs(stack))):
        environment["KUBECONFIG"] = kubeconfig
    shell = environment.get("SHELL") or "/bin/sh"
    print(f"pulumi, kubectl and python are Trainyard's own here (stack {stack}); leave with `exit`")
    os.chdir(PROJECT)
    os.execve(shell, [shell], {**environment, "TRAINYARD_SHELL": stack, "PULUMI_STACK": stack})


if __name__ == "__main__":
    main()
