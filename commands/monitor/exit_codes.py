"""Explanations of the exit codes of a job's processes: the trainer's, a user script's, and those of signals."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer.exit_codes import (
    BAD_CONFIGURATION,
    DATA_ERROR,
    DIVERGED,
    DONE,
    HANG,
    PREEMPTED,
    RESTARTS_USED,
    SLOW_LINK,
    STORAGE_ERROR,
)

if TYPE_CHECKING:
    from commands.monitor.pod_state import PodState

PROGRAM_CODES = {DONE: "done", 1: "uncaught error, or another rank failed first: its log says which"}
"""Meaning of the codes that every Python program uses."""
TRAINER_CODES = {
    **PROGRAM_CODES,
    2: "command line not understood",
    DIVERGED: "diverged: the loss is not a number",
    DATA_ERROR: "data error",
    SLOW_LINK: "a link between hosts is slower than the job asks for",
    HANG: "hang: a step took too long",
    RESTARTS_USED: "a host was lost and no restart is left",
    STORAGE_ERROR: "storage full or failing",
    PREEMPTED: "preempted, to be started again",
    BAD_CONFIGURATION: "bad configuration: a flag or its value",
}
"""Meaning of the trainer's exit codes."""
FINAL_CODES = (DIVERGED, DATA_ERROR, SLOW_LINK, BAD_CONFIGURATION)
"""Codes after which every kind but `mpi-job` and `ray-job` fails without a restart, a script's job too
(docs/kinds.md)."""
RETRYABLE_OFFSET = 128
"""Added by `trainer.launch` to codes that mean "run it again", for operators that retry only high codes."""
STOP_CODES = frozenset({DONE, PREEMPTED, PREEMPTED + RETRYABLE_OFFSET, 128 + 15})
"""Codes of a host that was told to stop: the trainer's, and that of a program that SIGTERM ends."""
SHELL_CODES = {126: "the command cannot be executed", 127: "the command is not in the image"}
"""Meaning of the codes that every shell and container runtime uses."""
LOST_SHIM_CODE = 255
"""Code that containerd reports if a container's shim is gone and the container's real exit code is unknown.

Source: https://github.com/containerd/containerd/blob/v2.4.2/core/runtime/v2/shim.go, cleanupAfterDeadShim.
"""
OUT_OF_MEMORY = "OOMKilled"
"""Reason of a container in which the kernel ended a process at the container's memory limit."""
SIGNALS = {1: "SIGHUP", 2: "SIGINT", 6: "SIGABRT", 7: "SIGBUS", 9: "SIGKILL", 11: "SIGSEGV", 15: "SIGTERM"}


def explain_exit(code: int, pod: PodState) -> str:
    """Return the meaning of an exit code of a pod's container or of a rank in it and, for lack of memory, advice.

    A signal is a negative code, 128 plus the signal's number, or 256 minus it. trainer.launch uses the last for a rank
    after which no restart is left.
    """
    signal = -code if code < 0 else code - 128
    if 256 - code in SIGNALS and code != LOST_SHIM_CODE:
        signal = 256 - code
    if pod.exit_code is not None and pod.reason == OUT_OF_MEMORY:
        limit = f"the container reached its limit of {pod.memory_limit}" if pod.memory_limit else "its node had no more"
        return f"out of memory: {limit}; {_raise_memory(pod)}"
    if signal == 9:
        return _killed(pod)
    if signal in SIGNALS:
        return f"ended by {SIGNALS[signal]}"
    if code in SHELL_CODES:
        return SHELL_CODES[code]
    if code == LOST_SHIM_CODE:
        node = pod.node or "its node"
        lost = f"the container's runtime process (containerd-shim) or all of {node} died, and its real code is lost"
        return f"the script's own code, or {lost}" if pod.runs_script else lost
    if pod.runs_script:
        if code == PREEMPTED:
            return "the host was told to stop (SIGTERM), or the script's own code"
        return PROGRAM_CODES.get(code) or _script_code(code, pod)
    known = TRAINER_CODES.get(code) or TRAINER_CODES.get(code - RETRYABLE_OFFSET)
    return known or "not an exit code of the trainer: the last lines of the log say more"


def _script_code(code: int, pod: PodState) -> str:
    is_final = code in FINAL_CODES and not pod.is_launcher
    return f"the script's own code{'; Kubernetes does not restart a job after it' if is_final else ''}"


def _killed(pod: PodState) -> str:
    """Return the meaning of a SIGKILL that was not an OOM kill at the container's limit."""
    limit = f"its limit of {pod.memory_limit}" if pod.memory_limit else "its memory limit"
    if pod.exit_code is None:
        # Until the container has ended, Kubernetes' reason for its end is not known.
        return f"ended by SIGKILL: the container reached {limit} ({_raise_memory(pod)}), or it was killed by hand"
    return (
        f"ended by SIGKILL: killed by hand, or {pod.node or 'its node'} ran out of memory; "
        f"the container did not reach {limit}, as far as Kubernetes knows"
    )


def _raise_memory(pod: PodState) -> str:
    more = f" from {pod.memory_limit} to more" if pod.memory_limit else ""
    return f"raise `resources.memory` of job {pod.job}{more}"
