"""`make up`: check the settings, set up what is missing, `pulumi up`, then follow the jobs to their end."""

from __future__ import annotations

import os
import subprocess
import sys
import time

from commands.environment import PROJECT, stack_environment
from commands.stack import PulumiFailed, ensure_stack, free_from_dead_owner, outputs, pulumi


def main() -> int:
    """Bring the stack up; the exit status is that of its jobs."""
    stack = os.environ.get("STACK", "local")
    begun = time.monotonic()
    checked = subprocess.run([sys.executable, "-m", "stack_config", f"Pulumi.{stack}.yaml"], cwd=PROJECT, check=False)
    if checked.returncode != 0:
        return checked.returncode
    set_up = subprocess.run([sys.executable, "-m", "setup"], cwd=PROJECT, check=False)
    if set_up.returncode != 0:
        return set_up.returncode
    try:
        ensure_stack(stack)
        if free_from_dead_owner(stack):
            print(f"stack {stack}: an earlier `pulumi` died in mid-update; its lock is lifted", flush=True)
        pulumi("up", "--yes", "--skip-preview", "--stack", stack)
        found = outputs(stack)
    except PulumiFailed as error:
        print(f"make up: {error}", file=sys.stderr)
        return 1
    os.environ.update(stack_environment())
    from commands.follow import follow

    status = follow(found["kubeconfig_path"], found["namespace"], list(found["jobs"]), sys.stdout)
    print_outputs(found)
    print(f"make up took {time.monotonic() - begun:.0f} s; `make down` removes everything")
    return status


def print_outputs(found: dict[str, object]) -> None:
    """Show the stack's outputs, one a line."""
    print("\nOutputs of the stack:")
    for name, value in sorted(found.items()):
        if isinstance(value, dict):
            print(f"  {name}:", *(f"    {key}: {text}" for key, text in sorted(value.items())), sep="\n")
        else:
            print(f"  {name}: {', '.join(value) if isinstance(value, list) else value}")


if __name__ == "__main__":
    sys.exit(main())
