"""Short output of `pulumi up`, `destroy` and `refresh`: counts by kind and diagnostics. A log file has all output."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

from commands.environment import PROJECT, STATE
from infra.local.settings import PLAIN_NAMES
from infra.make_command import VERBOSE_VARIABLE
from infra.naming import JOB_LABEL
from settings.text import wrap_line
from setup.progress import LiveLine, format_duration

EVENTS_VARIABLE = {"PULUMI_DEBUG_COMMANDS": "true"}
"""Environment that enables the CLI's option `--event-log`. Pulumi's Automation API uses it too:
https://github.com/pulumi/pulumi/blob/v3.274.1/sdk/python/lib/pulumi/automation/_stack.py
"""
VERBS = {"up": ("updating", "updated"), "destroy": ("destroying", "destroyed"), "refresh": ("refreshing", "refreshed")}
"""Pulumi command -> its verbs in messages: while it runs, and after its success."""
RESULT_WORDS = {
    "create": "created",
    "import": "imported",
    "update": "updated",
    "create-replacement": "replaced",
    "import-replacement": "replaced",
    "delete": "deleted",
}
"""Operation of an event -> word for its result. `same` and `refresh` count as unchanged; others do not count."""
RUNNING_WORDS = {
    "create": "creating",
    "import": "importing",
    "update": "updating",
    "create-replacement": "replacing",
    "delete-replaced": "deleting",
    "delete": "deleting",
    "read": "reading",
    "refresh": "refreshing",
}
"""Operation of an event -> word while it runs."""
SEVERITIES = {"error": "error: ", "warning": "warning: ", "info": "", "info#err": ""}
"""Severity of each visible diagnostic -> text before it."""
SUMMARIES = ("update failed", "destroy failed", "refresh failed", "Resource monitor has terminated, shutting down")
"""Diagnostics of the stack that only repeat that another resource failed."""
PROGRAM_FAILED = "an unhandled error occurred: program exited with non-zero exit code: 1"
"""Diagnostic that only repeats the program's failure, if the program's own message is directly before it."""
DYNAMIC_TYPE = "pulumi-python:dynamic:Resource"
"""Type of all resources of providers that are part of the program, such as the local cluster's."""
PROGRESS_LINE_SECONDS = 30.0
"""Seconds between two lines about running operations, without a terminal."""
TICK_SECONDS = 0.5
"""Seconds between two changes of the live line."""
MAX_LOGS = 20
"""Maximum number of log files of a stack."""
MAX_FILES = 5
"""Maximum number of changed files that a message names."""
TAIL_LINES = 20
"""Number of log lines to show if Pulumi fails without a diagnostic."""
NO_BREAK_SPACE = "\N{NO-BREAK SPACE}"
"""Space at which `wrap_line` does not break a line. The output shows an ordinary space instead."""
_KNOWN_WARNING = re.compile(
    r"(warning: )?using pulumi-[\w-]+ from \$PATH at "
    r"|Attempting to deploy or update resources with \d+ pending operations from previous deployment\."
)
"""Warnings that only the log shows.

The first is about a plugin on PATH, where set-up puts plugins on some machines:
https://github.com/pulumi/pulumi/pull/18476. The second is about unfinished operations, which
`commands.cloud_inventory.adopt_pending` has already checked.
"""
PASSPHRASE_ERROR = re.compile(r"incorrect passphrase|unable to read PULUMI_CONFIG_PASSPHRASE_FILE")
"""Errors about the passphrase. Only the log shows them: `commands.stack.explain_passphrase` has a better message."""
_COLOUR = re.compile(r"<\{%[^%]*%\}>|\x1b\[[0-9;]*m")
"""Colours in messages: Pulumi's own codes and those of terminals."""


def is_verbose() -> bool:
    """Return True if the user wants all output."""
    return os.environ.get(VERBOSE_VARIABLE, "").lower() not in ("", "0", "false", "no")


class EventLog:
    """Reader of the file that Pulumi writes with `--event-log` while it runs."""

    def __init__(self, path: Path) -> None:
        self._path, self._offset, self._rest = path, 0, b""

    def read(self) -> Iterator[Mapping[str, Any]]:
        """Yield the events of the lines that were completed since the last call."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                added = file.read()
        except FileNotFoundError:
            return
        self._offset += len(added)
        *lines, self._rest = (self._rest + added).split(b"\n")
        for line in lines:
            with suppress(ValueError):
                event = json.loads(line)
                if isinstance(event, dict):
                    yield event


class FoldedOutput:
    """Short output of one Pulumi command. Use it as a context manager, and call `poll` while Pulumi runs."""

    def __init__(
        self, command: str, stack: str, folder: Path, out: TextIO | None = None, *, changes_jobs: bool = False
    ) -> None:
        """Show the output of `command`, whose events are in `folder`.

        `changes_jobs` is True if the command changes only jobs.
        """
        self._doing, self._done = VERBS[command]
        self._subject = f"the jobs of stack {stack}" if changes_jobs else f"stack {stack}"
        self._events = EventLog(folder / "events.json")
        self.options = ["--event-log", str(folder / "events.json")]
        """Options for Pulumi."""
        self.log = _new_log(stack, command)
        """File with all output of Pulumi."""
        self._line = LiveLine(out)
        self.errors = _ErrorLines(self._line, self.log)
        """Stream for Pulumi's standard error."""
        self._begun = self._ticked = self._reported = time.monotonic()
        self._counts: dict[str, Counter[str]] = {}
        self._running: dict[str, tuple[str, float]] = {}
        self._failed: Counter[str] = Counter()
        self._unchanged = 0
        self._last_shown = ("", "")
        self._last_severity = ""
        self.diagnostics = ""
        """Text of Pulumi's error diagnostics."""

    def __enter__(self) -> FoldedOutput:
        self.file = self.log.open("a", encoding="utf-8")
        self._line.print(f"{self._subject}: {self._doing}")
        return self

    def __exit__(self, *_: object) -> None:
        self._line.clear()
        self.file.close()

    def poll(self, is_stopping: bool) -> None:
        """Show new diagnostics and the running operations. While Pulumi stops, `run_child` shows the operations."""
        for event in self._events.read():
            self._read(event)
        now = time.monotonic()
        if is_stopping:
            return
        if self._line.is_shown:
            if now - self._ticked >= TICK_SECONDS:
                self._ticked = now
                self._line.set(self._progress(now))
        elif now - self._reported >= PROGRESS_LINE_SECONDS:
            self._reported = now
            self._line.print(f"  {self._progress(now)}")

    def read_log(self) -> str:
        """Return all output of Pulumi."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    def end(self, status: int, *, is_partial: bool = False, is_explained: bool = False) -> None:
        """Show the counts and the duration. After a failure that is not explained, also show the end of the log.

        `is_partial` is True if a signal stopped Pulumi before its end. Pulumi 3.274.1 may then still return 0.
        `is_explained` is True if the caller explains a failure.
        """
        self.poll(True)
        self._line.clear()
        for done in dict.fromkeys(RESULT_WORDS.values()):
            if found := self._counts.get(done):
                self._line.print(self._wrapped(f"  {done}: {_counts_text(found)}"))
        if self._failed:
            self._line.print(self._wrapped(f"  failed: {_counts_text(self._failed)}"))
        if self._unchanged:
            self._line.print(f"  unchanged: {self._unchanged}")
        if status > 0 and not (self.diagnostics or self.errors.has_error or is_explained):
            for text in self.read_log().splitlines()[-TAIL_LINES:]:
                self._line.print(f"  {text}")
        seconds = format_duration(time.monotonic() - self._begun)
        word = self._done if status == 0 and not is_partial else f"not {self._done}; stopped"
        self._line.print(f"{self._subject}: {word} after {seconds}")
        self._line.print(self._wrapped(f"  all output of Pulumi: {short_path(self.log)}"))

    def _read(self, event: Mapping[str, Any]) -> None:
        """Count an event or show it."""
        if found := event.get("resourcePreEvent"):
            urn, operation = _urn_and_operation(found)
            self._running[urn] = (operation, time.monotonic())
        elif found := event.get("resOutputsEvent"):
            urn, operation = _urn_and_operation(found)
            self._running.pop(urn, None)
            if _is_component(urn):
                return
            self._unchanged += operation in ("same", "refresh")
            if word := RESULT_WORDS.get(operation):
                self._counts.setdefault(word, Counter())[_kind(urn)] += 1
            if operation == "create-replacement" and (reason := _changed_files(found["metadata"])):
                self._line.print(self._wrapped(f"  {reason}"))
        elif found := event.get("resOpFailedEvent"):
            urn, _ = _urn_and_operation(found)
            self._running.pop(urn, None)
            self._failed[_kind(urn)] += 1
        elif found := event.get("diagnosticEvent"):
            self._show(found.get("urn") or "", found)
        elif found := event.get("policyEvent"):
            name = f"{found.get('policyName')} ({found.get('enforcementLevel')}): "
            self._show(found.get("resourceUrn") or "", {**found, "severity": "info", "prefix": name})

    def _show(self, urn: str, found: Mapping[str, Any]) -> None:
        """Show a diagnostic, unless it is ephemeral, repeats another or is a known warning."""
        severity, text = str(found.get("severity")), _plain(str(found.get("message") or "")).rstrip()
        if found.get("ephemeral") or severity not in SEVERITIES or not text.strip():
            return
        if severity == "error":
            self.diagnostics += f"{text}\n"
        if (urn, text) == self._last_shown or text in SUMMARIES or _KNOWN_WARNING.match(text):
            return
        if text == PROGRAM_FAILED and self._last_severity in ("error", "info#err"):
            return
        self._last_shown, self._last_severity = (urn, text), severity
        # The message of a dynamic provider's error is complete without the name of the exception's class.
        text = text.removeprefix("RuntimeError: ")
        # Leave out the stack's name. The program prints an error as many one-line messages, and each would repeat it.
        name = f"{_label(urn)}: " if urn and not _is_stack(urn) else ""
        prefix = _plain(str(found.get("prefix") or "")).strip()
        label = f"{prefix} " if prefix and prefix.rstrip(":") not in SEVERITIES else SEVERITIES[severity]
        lines = [f"  {each}" for each in f"{name}{label}{text}".splitlines()]
        self._line.print("\n".join(map(self._wrapped, lines) if self._line.is_shown else lines))

    def _wrapped(self, text: str) -> str:
        """Wrap an indented line if the output is a terminal."""
        width = shutil.get_terminal_size().columns - 1 if self._line.is_shown else len(text)
        return "\n".join(wrap_line(text, width)).replace(NO_BREAK_SPACE, " ")

    def _progress(self, now: float) -> str:
        """Return the running operations, the longest first, and the number of finished operations."""
        texts = [
            f"{RUNNING_WORDS.get(operation, operation)} {_label(urn)} ({format_duration(now - begun)})"
            for urn, (operation, begun) in self._running.items()
            if not _is_component(urn) and operation != "same"
        ]
        done = sum(sum(found.values()) for found in self._counts.values())
        return f"{self._doing}, {format_duration(now - self._begun)}, {done} done: " + (", ".join(texts) or "waiting")


class _ErrorLines(io.TextIOBase):
    """Stream that copies lines to the log file and shows them above the live line."""

    def __init__(self, line: LiveLine, log: Path) -> None:
        self._line, self._log = line, log
        self.has_error = False
        """True if Pulumi has reported an error on this stream."""

    def write(self, text: str) -> int:
        """Write text that ends with a newline."""
        plain = _plain(text)
        self.has_error |= plain.startswith("error: ")
        if not _KNOWN_WARNING.match(plain) and not PASSPHRASE_ERROR.search(plain):
            self._line.print(text.rstrip("\n"))
        with self._log.open("a", encoding="utf-8") as file:
            file.write(plain)
        return len(text)


def reported_errors(output: str) -> str:
    """Return the errors in the output of a failed Pulumi command: its JSON diagnostics, or else its last lines."""
    _, brace, rest = output.partition("{")
    try:
        diagnostics = json.loads(f"{brace}{rest}").get("diagnostics") or ()
    except (ValueError, AttributeError):
        return _plain("\n".join(output.strip().splitlines()[-TAIL_LINES:]))
    lines: list[str] = []
    for each in diagnostics:
        text, urn = _plain(each.get("message") or "").strip().removeprefix("error: "), each.get("urn") or ""
        is_repetition = text in SUMMARIES or (text == PROGRAM_FAILED and bool(lines))
        if each.get("severity") == "error" and text and not is_repetition:
            lines.append(f"  {_label(urn)}: {text}" if urn and not _is_stack(urn) else f"  {text}")
    return "\n".join(dict.fromkeys(lines))


def short_path(path: Path) -> str:
    """Return a path relative to the working directory; unchanged for a path outside of it."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def logs(stack: str) -> list[Path]:
    """Return the log files of a stack, oldest first."""
    return sorted((STATE / "logs" / stack).glob("*.log"))


def _new_log(stack: str, command: str) -> Path:
    """Return the path of a new log file. First delete the oldest logs, so that the stack keeps at most MAX_LOGS."""
    folder = STATE / "logs" / stack
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for old in logs(stack)[: -(MAX_LOGS - 1)]:
        old.unlink(missing_ok=True)
    return folder / f"{time.strftime('%Y%m%d-%H%M%S')}-{command}.log"


def _urn_and_operation(event: Mapping[str, Any]) -> tuple[str, str]:
    metadata = event.get("metadata") or {}
    return str(metadata.get("urn", "")), str(metadata.get("op", ""))


def _changed_files(metadata: Mapping[str, Any]) -> str:
    """Return a sentence about the changed files of a job, if the resource is the ConfigMap with these files."""
    old, new = ((metadata.get(side) or {}).get("inputs") or {} for side in ("old", "new"))
    job = ((new.get("metadata") or {}).get("labels") or {}).get(JOB_LABEL)
    before, after = old.get("data") or {}, new.get("data") or {}
    names = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
    if not job or new.get("kind") != "ConfigMap" or not names:
        return ""
    if any(name.startswith("file-") for name in names):
        paths = _paths_by_key(PROJECT)
        names = sorted(paths.get(name, name) for name in names)
    more = f" and {len(names) - MAX_FILES} more" if len(names) > MAX_FILES else ""
    return f"job {job} runs again, because its files have changed: {', '.join(names[:MAX_FILES])}{more}"


def _paths_by_key(project: Path) -> dict[str, str]:
    """Return key in a ConfigMap -> path of the source file. Try each parent folder, because the script's is unknown."""
    # Import this module here, because most updates do not need it.
    from workloads.user_files import key_of, source_files

    found = {}
    for file in source_files(project):
        for folder in [each for each in file.parents if each.is_relative_to(project)]:
            path = file.relative_to(folder).as_posix()
            found[key_of(path)] = path
    return found


def _counts_text(counts: Counter[str]) -> str:
    """Return counts by kind, most frequent first, such as `3 ServiceAccount, 1 Job`. No line breaks after a count."""
    found = sorted(counts.items(), key=lambda each: (-each[1], each[0]))
    return ", ".join(PLAIN_NAMES.get(kind) or f"{count}{NO_BREAK_SPACE}{kind}" for kind, count in found)


def _type(urn: str) -> str:
    return urn.split("::")[2].rpartition("$")[2] if urn.count("::") >= 3 else urn


def _kind(urn: str) -> str:
    """Return the last part of a resource's type, or the name of a resource of a dynamic provider."""
    return _name(urn) if _type(urn) == DYNAMIC_TYPE else _type(urn).rpartition(":")[2]


def _name(urn: str) -> str:
    return urn.rpartition("::")[2]


def _label(urn: str) -> str:
    """Return kind and name of a resource, or its plain name in PLAIN_NAMES."""
    return PLAIN_NAMES.get(_name(urn)) or " ".join(dict.fromkeys((_kind(urn), _name(urn))))


def _is_stack(urn: str) -> bool:
    return _type(urn) == "pulumi:pulumi:Stack"


def _is_component(urn: str) -> bool:
    """Return True for a component or provider of the program, which exists only in Pulumi."""
    return _type(urn).startswith(("trainyard:", "pulumi:"))


def _plain(text: str) -> str:
    return _COLOUR.sub("", text)
