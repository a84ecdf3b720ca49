"""Calls of the Pulumi CLI for a stack of this project, and recovery of a stack after a killed command."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml

from commands import stack_files
from commands.environment import (
    PROJECT,
    PROVIDER_FILES,
    STATE,
    PassphraseRejected,
    StackBusy,
    StateBroken,
    passphrase_file,
    program_folder,
    stack_environment,
)
from commands.environment import PulumiFailed as PulumiFailed
from commands.interrupts import Child, Interrupted, describe_file_error, hold_signals, run_child, run_set_up
from commands.pulumi_output import (
    EVENTS_VARIABLE,
    PASSPHRASE_ERROR,
    VERBS,
    FoldedOutput,
    is_verbose,
    reported_errors,
    short_path,
)
from commands.stack_files import (
    RUN_VARIABLE,
    StateFiles,
    backend_folder,
    end_orphans,
    project_name,
    run_mark,
    stack_lock,
)
from infra.kubeconfig import PROVIDER_TMPDIR
from infra.make_command import make_command
from setup.pulumi_cli import has_cli

BACKEND_VARIABLE = "PULUMI_BACKEND_URL"
"""Variable with the URL of a shared backend. Its stacks can exist before set-up has installed `pulumi` here."""
SALT_KEY = b"encryptionsalt:"
CHANGING_COMMANDS = ("up", "destroy", "refresh")
"""Pulumi commands that change resources or the state."""
JOB_TYPE = "trainyard:workloads:TrainingJob"
"""Type of a job's component. The URNs of its child resources contain it too."""
JOBS_TARGET = f"**{JOB_TYPE}**"
"""Value of Pulumi's `--target` for all training jobs and their child resources."""
UNKNOWN_STACK = "no stack named"
"""Words in Pulumi's error for a stack that the backend does not have."""
STATE_ERROR = "failed to load checkpoint: "
"""Words in Pulumi's error for a state that it cannot read."""
FULL_DISK_BYTES = 1 << 16
"""Free bytes below which a disk is full. Pulumi writes several files for each operation."""
_FULL_DISK = re.compile(
    r"((?P<path>/[^\s:]+): )?(?P<reason>no space left on device|disk quota exceeded)", re.IGNORECASE
)
"""Reason for a failed write in Pulumi's output, with the file if Pulumi names it."""

WITHOUT_SNAPSHOTS = {"PULUMI_EXPERIMENTAL": "true", "PULUMI_SKIP_CHECKPOINTS": "true"}
"""Environment of previews. Without it, CLI 3.274.1 serializes the state after each resource and discards the text.

CPU time of a preview with 513 jobs: 82 s with snapshots, 16 s without (one run each).
"""


def pulumi(*words: str, quiet: bool = False) -> str:
    """Run `pulumi`. With `quiet`, return its output and show nothing.

    Without `quiet`, show its output. For `up`, `destroy` and `refresh`, show only a summary unless VERBOSE is set.

    Raises PulumiFailed; StackBusy if a lock blocks it; Interrupted if a signal stopped it; FileNotFoundError if
    `pulumi` is missing and no shared backend is set.
    """
    set_up = [sys.executable, "-m", "setup", "--no-cluster"]
    if BACKEND_VARIABLE in os.environ and not has_cli() and run_set_up(set_up, stdout=sys.stderr) != 0:
        raise PulumiFailed("`pulumi` is missing and set-up did not install it; the output above has the reason")
    stack = _stack_of(words)
    diagnostics = ""
    with hold_signals(), settings_without_salt(), provider_files(stack) as folder:
        run = partial(_run, words, stack, folder)
        if words[0] in VERBS and not quiet and not is_verbose():
            with FoldedOutput(words[0], stack, Path(folder), changes_jobs=JOBS_TARGET in words) as output:
                done = run(
                    output.options, EVENTS_VARIABLE, stdout=output.file, errors_to=output.errors, on_poll=output.poll
                )
                is_partial = done.is_stopped and words[0] == "destroy" and not _is_destroyed(stack)
                full_disk = explain_full_disk(done.stderr + output.read_log()) if done.status > 0 else ""
                output.end(done.status, is_partial=is_partial, is_explained=bool(full_disk))
            detail, diagnostics = f"; all of its output is in {short_path(output.log)}", output.diagnostics
        else:
            # Without this option, Pulumi prints no colours, because `run_child` gives it no terminal as input.
            has_colours = not quiet and sys.stdout.isatty() and "NO_COLOR" not in os.environ
            done = run(["--color", "always"] if has_colours else [], quiet=quiet)
            reason = done.stderr.strip() or reported_errors(done.stdout)
            detail = f":\n{reason}" if quiet and reason else ""
            full_disk = explain_full_disk(done.stderr) if done.status > 0 else ""
        if done.is_stopped:
            _raise_interrupted(words, stack, done)
    if owners := stack_files.owners_in(done.stderr):
        raise StackBusy(stack_files.explain_locks(stack, owners, run_mark(PROJECT, stack)))
    if done.status != 0:
        if PASSPHRASE_ERROR.search(done.stderr):
            raise PassphraseRejected(explain_passphrase(stack))
        if (reason := done.stderr.partition(STATE_ERROR)[2].strip()) and (files := _state_files(stack)):
            raise StateBroken(
                f"stack {stack}: its state {files.path} cannot be read: {reason}; restore it from a copy, or delete "
                "its resources yourself: docs/troubleshooting.md says how"
            )
        if full_disk:
            raise PulumiFailed(full_disk)
        error = PulumiFailed(f"`pulumi {' '.join(words)}` failed with {done.status}{detail}")
        error.diagnostics = diagnostics
        raise error
    return done.stdout


def _run(
    words: Sequence[str],
    stack: str,
    folder: str,
    options: Sequence[str],
    variables: Mapping[str, str] = MappingProxyType({}),
    **output: Any,
) -> Child:
    """Run `pulumi` with more options and environment variables. `output` has further arguments of `run_child`."""
    return run_child(
        ["pulumi", *words, *options],
        name="Pulumi",
        cwd=program_folder(),
        env={
            **stack_environment(),
            **(WITHOUT_SNAPSHOTS if words[0] == "preview" else {}),
            **{RUN_VARIABLE: run_mark(PROJECT, stack), PROVIDER_TMPDIR: folder},
            **variables,
        },
        keeps_errors=True,
        ignores_at_start=True,
        waits_for=lambda: ", ".join(_pending(stack)),
        **output,
    )


@contextmanager
def provider_files(stack: str) -> Iterator[str]:
    """Yield a folder for the files that the Kubernetes provider writes in one run. Remove it at the end."""
    folder = PROVIDER_FILES / stack
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        with tempfile.TemporaryDirectory(dir=folder) as found:
            yield found
    finally:
        with suppress(OSError):  # The folder has files of another run.
            folder.rmdir()


def remove_provider_files(stack: str) -> None:
    """Remove the provider's files of killed runs, and of `pulumi` run in the stack's shell."""
    shutil.rmtree(PROVIDER_FILES / stack, ignore_errors=True)


def _stack_of(words: Sequence[str]) -> str:
    given = list(words)
    if "--stack" in given:
        return given[given.index("--stack") + 1]
    return given[2] if given[:2] == ["stack", "init"] else os.environ.get("STACK", "local")


def _state_files(stack: str) -> StateFiles | None:
    """Return the stack's state files; None if the backend is not a folder."""
    folder = backend_folder(stack_environment()["PULUMI_BACKEND_URL"], PROJECT)
    return StateFiles(folder, project_name(program_folder()), stack) if folder else None


def _pending(stack: str) -> list[str]:
    """Return the unfinished operations in the state; empty if this machine cannot read the state."""
    files = _state_files(stack)
    return files.pending_operations() if files else []


def _is_destroyed(stack: str) -> bool:
    """Return True if the stack has no more resources; False if this machine cannot read the state."""
    files = _state_files(stack)
    return files is not None and files.is_destroyed


def _raise_interrupted(words: Sequence[str], stack: str, done: Child) -> None:
    """Raise Interrupted with the stack's state and the next commands; KeyboardInterrupt if `words` change nothing."""
    if words[0] not in CHANGING_COMMANDS:
        raise KeyboardInterrupt
    up, down = make_command("up", STACK=stack), make_command("down", STACK=stack)
    again = f"{up} continues from there, {down} removes the stack"
    if words[0] == "destroy":
        again = f"{down} removes the rest, {up} brings the stack up again"
    pending = _pending(stack)
    if done.status < 0:
        end_orphans(run_mark(PROJECT, stack))
        raise Interrupted(
            f"`pulumi` was killed and may have left its lock and unfinished operations of stack {stack}; {again}; both "
            "commands first clear the lock and check the operations"
        )
    if pending:
        names = ", ".join(pending)
        raise Interrupted(f"stack {stack} has unfinished operations ({names}); {again}; both check them first")
    if done.is_abandoned and _state_files(stack) is None:
        raise Interrupted(f"stack {stack} may have unfinished operations; {again}; both check them first")
    if words[0] == "destroy" and _is_destroyed(stack):
        raise Interrupted(f"all resources of stack {stack} are deleted; {down} then removes the stack")
    raise Interrupted(f"the state of stack {stack} is complete; {again}")


@contextmanager
def settings_without_salt(folder: Path | None = None) -> Iterator[None]:
    """Keep `encryptionsalt` out of settings files that had none. A salt belongs to the state of only one checkout.

    The files are in `folder`, by default the project. After this block, restore each file to which Pulumi has added a
    salt, and delete each new file that has only a salt. A file stays as it is if the user has meanwhile removed it or
    changed its settings. Numbers that Pulumi has written as text are not a change.
    """
    place = folder or PROJECT
    files = sorted(path for path in place.glob("Pulumi.*.yaml") if path.is_file())
    before = {path: content for path in files if SALT_KEY not in (content := path.read_bytes())}
    try:
        yield
    finally:
        for path, content in before.items():
            with suppress(FileNotFoundError, yaml.YAMLError, AttributeError):  # The user has changed or removed it.
                if SALT_KEY in (now := path.read_bytes()) and _settings(now) == _settings(content):
                    path.write_bytes(content)
        for path in set(place.glob("Pulumi.*.yaml")) - set(files):
            lines = path.read_bytes().splitlines() if path.is_file() else []
            if lines and all(line.startswith(SALT_KEY) for line in lines):
                path.unlink()


def _settings(content: bytes) -> dict[str, Any]:
    """Return a file's settings without the salt, and with numbers in one form, to compare them."""
    found = yaml.safe_load(content) or {}
    config = {key: _text(value) for key, value in (found.get("config") or {}).items()}
    return {key: value for key, value in found.items() if key.encode() + b":" != SALT_KEY} | {"config": config}


def _text(value: Any) -> Any:
    """Return a number as text in one canonical form, any other value unchanged."""
    try:
        return str(float(value)) if isinstance(value, int | float | str) and not isinstance(value, bool) else value
    except ValueError:
        return value


def stack_exists(stack: str) -> bool:
    """Return True if the backend has the stack. Raises PulumiFailed if that is unknown."""
    if files := _state_files(stack):
        return files.exists
    try:
        pulumi("stack", "export", "--stack", stack, quiet=True)
    except PulumiFailed as error:
        if UNKNOWN_STACK in str(error):
            return False
        raise
    return True


def ensure_stack(stack: str) -> None:
    """Create the stack if the backend does not have it. Its settings file stays unchanged."""
    if not stack_exists(stack):
        pulumi("stack", "init", stack, "--no-select", quiet=True)


def explain_full_disk(text: str) -> str:
    """Return a sentence about the full disk that made Pulumi fail with this output; empty for other failures."""
    found = _FULL_DISK.search(text)
    if not found and shutil.disk_usage(PROJECT).free >= FULL_DISK_BYTES:
        return ""
    path = found["path"] if found and found["path"] else str(PROJECT)
    number = errno.EDQUOT if found and "quota" in found["reason"].lower() else errno.ENOSPC
    return describe_file_error(OSError(number, os.strerror(number), path))


def explain_passphrase(stack: str) -> str:
    """Return a sentence about a passphrase that Pulumi cannot use for the stack, with what to do."""
    if _has_unknown_salt(stack):
        return (
            f"Pulumi.{stack}.yaml: its `encryptionsalt` was written with another passphrase; "
            "set PULUMI_CONFIG_PASSPHRASE to that passphrase, or remove that line and every `secure:` value"
        )
    why = f"not the passphrase of stack {stack}, so no resource was changed"
    lost = "docs/troubleshooting.md says how to remove the stack without it"
    if "PULUMI_CONFIG_PASSPHRASE" in os.environ:
        # Do not call `passphrase_file`, which would create the file.
        default = f", or unset it to use {file}" if (file := STATE / "passphrase").exists() else ""
        return f"PULUMI_CONFIG_PASSPHRASE: {why}; set it to the passphrase that created the stack{default}; {lost}"
    file = Path(os.environ.get("PULUMI_CONFIG_PASSPHRASE_FILE") or passphrase_file())
    missing = f"no such file; it must have the passphrase of stack {stack}; no resource was changed"
    problem = why if file.exists() else missing
    return f"{file}: {problem}; restore the old passphrase there, or set PULUMI_CONFIG_PASSPHRASE to it; {lost}"


def _has_unknown_salt(stack: str) -> bool:
    """Return True if the stack's settings have a salt that its state on this machine does not have."""
    settings, files = PROJECT / f"Pulumi.{stack}.yaml", _state_files(stack)
    lines = settings.read_bytes().splitlines() if settings.is_file() else []
    salts = [line.removeprefix(SALT_KEY).strip() for line in lines if line.startswith(SALT_KEY)]
    return files is not None and not all(map(files.contains, salts))


def outputs(stack: str) -> dict[str, Any]:
    """Return the stack's outputs, with masked secrets. Repair a broken state first.

    Raises PulumiFailed, such as StateBroken if the state has no intact copy.
    """
    files = _state_files(stack)
    if files and files.is_broken:
        with stack_lock(stack, "the repair of a broken state"):
            _repair(files)
    found: dict[str, Any] = json.loads(pulumi("stack", "output", "--json", "--stack", stack, quiet=True))
    return found


def read_deployment(stack: str) -> dict[str, Any]:
    """Return the deployment in the stack's state; empty if Pulumi has written none."""
    return json.loads(pulumi("stack", "export", "--stack", stack, quiet=True))["deployment"] or {}


def save_kubeconfig(stack: str, path: Path) -> None:
    """Write the kubeconfig of a stack's cluster to a file that only its owner can read. It contains no credentials."""
    text = pulumi("stack", "output", "kubeconfig", "--show-secrets", "--stack", stack, quiet=True)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.touch(mode=0o600)
    # Do not rewrite a file that is already current: a running kubectl could read a part of it.
    if path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


def renew_kubeconfig(stack: str, found: Mapping[str, Any]) -> None:
    """Write the kubeconfig of a cloud cluster. Another user may have recreated the cluster at another address."""
    path = str(found.get("kubeconfig_path") or "")
    # The path is absolute for a local or existing cluster.
    if path and not Path(path).is_absolute():
        save_kubeconfig(stack, PROJECT / path)


def kubeconfig_of(stack: str, found: Mapping[str, Any]) -> str:
    """Return the path of the kubeconfig in a stack's outputs; empty for none.

    Write the file of a cloud cluster if this checkout does not have it.
    """
    path = str(found.get("kubeconfig_path") or "")
    if not path or Path(path).is_absolute():
        return path
    file = PROJECT / path
    if not file.exists():
        save_kubeconfig(stack, file)
    return str(file)


def recover(stack: str) -> None:
    """End the processes of a killed command, remove its locks, and repair the state.

    The caller must hold this checkout's lock. Raises StackBusy, or StateBroken if the state has no intact copy.
    """
    mark = run_mark(PROJECT, stack)
    if count := end_orphans(mark):
        print(f"stack {stack}: ended {count} process(es) that a dead `pulumi` had left", flush=True)
    if files := _state_files(stack):
        is_shared = BACKEND_VARIABLE in os.environ
        for each in stack_files.free_locks(files.folder, files.project, stack, mark, is_shared=is_shared):
            print(each, flush=True)
        _repair(files)


def _repair(files: StateFiles) -> None:
    for each in files.repair():
        print(f"stack {files.stack}: {each}", flush=True)


def reset_state(stack: str) -> Path:
    """Rename a broken state, so that the stack counts as new. Return its new path."""
    files = _state_files(stack)
    assert files is not None, "only folder backends have a state that is known to be broken"
    return files.set_aside()
