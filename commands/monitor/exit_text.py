"""Explanations of the exit codes of a job's processes: the trainer's, a user script's, and those of signals."""

from __future__ import annotations

from dataclasses import dataclass

TRAINER_CODES = {
    0: "done",
    1: "uncaught error, or another rank failed first: its log says which",
    2: "command line not understood",
    65: "diverged: the loss is not a number",
    66: "data error",
    69: "a link between hosts is slower than the job asks for",
    70: "hang: a step took too long",
    71: "a host was lost and no restart is left",
    74: "storage full or failing",
    75: "preempted, to be started again",
    78: "bad configuration: a flag or its value",
}
"""Meaning of the trainer's exit codes (trainer/exit_codes.py)."""
FINAL_CODES = (65, 66, 69, 78)
"""Codes after which every kind but `mpi-job` and `ray-job` fails without a restart, a script's job too
(docs/kinds.md)."""
RETRYABLE_OFFSET = 128
"""Added by `trainer.launch` to codes that mean "run it again", for operators that retry only high codes."""
SHELL_CODES = {126: "the command cannot be executed", 127: "the command is not in the image"}
"""Meaning of the codes that every shell and container runtime uses."""
LOST_SHIM_CODE = 255
"""Code that containerd reports if a container's shim is gone and the container's real exit code is unknown.

Source: https://github.com/containerd/containerd/blob/v2.4.2/core/runtime/v2/shim.go, cleanupAfterDeadShim.
"""
OUT_OF_MEMORY = "OOMKilled"
"""Reason of a container in which the kernel ended a process at the container's memory limit."""
SIGNALS = {1: "SIGHUP", 2: "SIGINT", 6: "SIGABRT", 7: "SIGBUS", 9: "SIGKILL", 11: "SIGSEGV", 15: "SIGTERM"}


@dataclass(frozen=True, kw_only=True)
class Container:
    """Facts about a container on which the meaning of an exit code depends."""

    job: str = ""
    """Name of its job."""
    node: str = ""
    """Node that it ran on."""
    runs_script: bool = False
    """True if it runs the user's program instead of the trainer."""
    is_launcher: bool = False
    """True if it runs mpirun, whose job restarts after every code."""
    memory_limit: str = ""
    """Its memory limit, such as `2Gi`; empty for none."""
    reason: str | None = None
    """Kubernetes' reason for its end; None if unknown."""


def explain_exit(code: int, container: Container) -> str:
    """Return the meaning of an exit code and, for lack of memory, advice.

    A signal is a negative code, 128 plus the signal's number, or 256 minus it. trainer.launch uses the last for a rank
    after which no restart is left.
    """
    signal = -code if code < 0 else code - 128
    if 256 - code in SIGNALS and code != LOST_SHIM_CODE:
        signal = 256 - code
    if container.reason == OUT_OF_MEMORY:
        return _out_of_memory(container)
    if signal == 9:
        return _killed(container)
    if signal in SIGNALS:
        return f"ended by {SIGNALS[signal]}"
    if code in SHELL_CODES:
        return SHELL_CODES[code]
    if code == LOST_SHIM_CODE:
        node = container.node or "its node"
        lost = f"the container's runtime process (containerd-shim) or all of {node} died, and its real code is lost"
        return f"the script's own code, or {lost}" if container.runs_script else lost
    if container.runs_script:
        return _script_code(code, container)
    known = TRAINER_CODES.get(code) or TRAINER_CODES.get(code - RETRYABLE_OFFSET)
    return known or "not an exit code of the trainer: the last lines of the log say more"


def _script_code(code: int, container: Container) -> str:
    if code in (0, 1):
        return TRAINER_CODES[code]
    final = "; Kubernetes does not restart a job after it" if code in FINAL_CODES and not container.is_launcher else ""
    return f"the script's own code{final}"


def _out_of_memory(container: Container) -> str:
    if not container.memory_limit:
        return f"out of memory: {container.node or 'its node'} had no more; {_raise_memory(container)}"
    return f"out of memory: the container reached its limit of {container.memory_limit}; {_raise_memory(container)}"


def _killed(container: Container) -> str:
    """Return the meaning of a SIGKILL that was not an OOM kill at the container's limit."""
    limit = f"its limit of {container.memory_limit}" if container.memory_limit else "its memory limit"
    if container.reason is None:
        return f"ended by SIGKILL: the container reached {limit} ({_raise_memory(container)}), or it was killed by hand"
    node = container.node or "its node"
    return (
        f"ended by SIGKILL: killed by hand, or {node} ran out of memory; "
        f"the container did not reach {limit}, as far as Kubernetes knows"
    )


def _raise_memory(container: Container) -> str:
    job = f" of job {container.job}" if container.job else ""
    more = f" from {container.memory_limit} to more" if container.memory_limit else ""
    return f"raise `resources.memory`{job}{more}"
