"""`make exec RANK=1`: open a shell in the pod of a rank, with the launcher's environment.

If the stack has several jobs, JOB=NAME picks one. The hosts of a job with `interactive: true` wait for commands that
the user starts by hand.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence

from commands.environment import stack_environment
from commands.interrupts import STILL_RUNNING, run_command, set_closing
from commands.monitor.cluster import StackNotFound, StackOutputs, stack_outputs
from commands.monitor.pod_state import PodState, latest_by_place
from infra.make_command import make_command

SHELL = ("sh", "-c", "exec $(command -v bash || echo sh)")
"""Shell of a pod: bash if the image has it."""


def job_named(found: StackOutputs, name: str, target: str = "exec") -> str:
    """Return the job that a command names, or the only one. Raises StackNotFound for an unknown or ambiguous name."""
    if not name and len(found.jobs) == 1:
        return found.jobs[0]
    if name in found.jobs:
        return name
    if not found.jobs:
        raise StackNotFound("the stack has no jobs")
    problem = f"{name}: the stack has no such job" if name else "the stack has several jobs"
    example = make_command(target, JOB=found.jobs[0])
    raise StackNotFound(f"{problem}; name one of {', '.join(found.jobs)}, as in {example}")


def pod_of(pods: Sequence[PodState], rank: str) -> PodState:
    """Return the running pod of a rank, or of a role such as `launcher`. Raises StackNotFound if none runs."""
    running = [pod for pod in latest_by_place(pods) if pod.state == "running"]
    for pod in running:
        if rank == pod.label or (rank.isdigit() and int(rank) in pod.ranks):
            return pod
    listed = ", ".join(pod.label for pod in running) or "none"
    raise StackNotFound(f"RANK={rank}: no pod of this rank is running; running: {listed}")


def kubectl_command(found: StackOutputs, pod: PodState, command: Sequence[str]) -> list[str]:
    """Return the kubectl command that runs `command` in the pod; a shell if `command` is empty."""
    context = ["--context", found.context] if found.context else []
    terminal = ["--stdin", "--tty"] if sys.stdin.isatty() else ["--stdin"]
    kubectl = ["kubectl", *context, "--namespace", found.namespace, "exec", *terminal, pod.name, "--"]
    return [*kubectl, *(command or SHELL)]


def main(command: list[str]) -> int:
    """Run kubectl. Return its exit status."""
    set_closing(STILL_RUNNING)
    found = stack_outputs()
    name = job_named(found, os.environ.get("JOB", ""))
    pod = pod_of(found.cluster().pods([name]), os.environ.get("RANK") or "0")
    environment = {**stack_environment(), "KUBECONFIG": found.kubeconfig_path}
    # The signal ends kubectl, not the program in the pod: the Kubernetes API has no call for that.
    again = make_command("exec", JOB=name, RANK=os.environ.get("RANK", ""))
    set_closing(f"job {name} and the programs in its pod continue; {again} opens a shell again")
    return subprocess.run(kubectl_command(found, pod, command), env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(run_command("make exec", lambda: main(sys.argv[1:])))
