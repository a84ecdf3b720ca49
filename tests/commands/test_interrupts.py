"""Signals to commands: forwarding to a child, `make down`, the start of Python, and messages about file errors.

tests/end_to_end has tests with real programs.
"""

from __future__ import annotations

import errno
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from commands import interrupts
from commands.interrupts import describe_file_error

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_SECONDS = 30.0
COMMAND_PROGRAM = """
import sys
from pathlib import Path
from commands import interrupts

def main():
    folder = Path(sys.argv[1])
    run = lambda: interrupts.run_child(
        [sys.executable, str(folder / "child.py"), str(folder)], name="Pulumi", cwd=folder, ignores_at_start=True)
    if sys.argv[2] == "finishing":
        with interrupts.finish_before_stopping():
            done = run()
            (folder / "status").write_text(f"{done.status} {done.is_stopped}")
    else:
        done = run()
    if done.is_stopped:
        raise interrupts.Interrupted(f"Pulumi ended with {done.status}")
    return done.status

interrupts.REPORT_SECONDS = 0.2
sys.exit(interrupts.run_command("make up", main))
"""
"""Command that runs the child. With the argument `finishing`, the child runs inside `finish_before_stopping()`."""
CHILD_PROGRAM = """
import signal, sys, time
from pathlib import Path
folder = Path(sys.argv[1])

def record(number, _frame):
    with (folder / "signals").open("a") as file:
        file.write(signal.Signals(number).name + " ")

def wait(name):
    while not (folder / name).exists():
        time.sleep(0.01)

signal.signal(signal.SIGTERM, record)
(folder / "begun").touch()
wait("listen")
signal.signal(signal.SIGINT, record)
(folder / "listening").touch()
wait("end")
"""
"""Child that records its signals. It handles SIGINT once the file `listen` exists, and ends once `end` exists."""


@dataclass
class RunningCommand:
    """Command with a child. The test controls both through files in the folder."""

    folder: Path
    process: subprocess.Popen[str]

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait until `condition` is true. Fail at the time limit."""
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while not condition():
            assert time.monotonic() < deadline, self.signals
            time.sleep(0.01)

    def wait_for_file(self, name: str) -> None:
        """Wait until the command or its child has written a file."""
        self.wait_until((self.folder / name).exists)

    @property
    def signals(self) -> str:
        """Names of the signals that the child has received."""
        path = self.folder / "signals"
        return path.read_text(encoding="utf-8").strip() if path.exists() else ""

    def end(self) -> tuple[int, str]:
        """Let the child end. Return the command's status and output."""
        (self.folder / "listen").touch()
        (self.folder / "end").touch()
        _, output = self.process.communicate(timeout=TIMEOUT_SECONDS)
        assert "Traceback" not in output
        return self.process.returncode, output


@pytest.fixture(params=["plain"])
def running(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[RunningCommand]:
    """Yield a command whose child runs but does not handle SIGINT yet.

    The parameter `finishing` is the argument of COMMAND_PROGRAM.
    """
    (tmp_path / "child.py").write_text(CHILD_PROGRAM, encoding="utf-8")
    words = [sys.executable, "-c", COMMAND_PROGRAM, str(tmp_path), request.param]
    with subprocess.Popen(words, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        found = RunningCommand(tmp_path, process)
        found.wait_for_file("begun")
        yield found
        for name in ("listen", "end"):
            (tmp_path / name).touch()
        process.kill()


def test_signal_before_the_child_is_ready_reaches_the_child_once_it_is_ready(running: RunningCommand) -> None:
    running.process.send_signal(signal.SIGINT)
    assert running.process.stderr is not None
    assert "stopping: Pulumi finishes the operations in progress" in running.process.stderr.readline()
    assert "still waiting for Pulumi to end" in running.process.stderr.readline()
    assert running.signals == ""
    (running.folder / "listen").touch()
    running.wait_until(lambda: running.signals == "SIGINT")
    status, output = running.end()
    assert (status, running.signals) == (130, "SIGINT")
    assert output.endswith("make up: stopped; Pulumi ended with 0\n")


@pytest.mark.parametrize(("number", "expected"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_sigterm_and_sighup_interrupt_the_child(running: RunningCommand, number: signal.Signals, expected: int) -> None:
    (running.folder / "listen").touch()
    running.wait_for_file("listening")
    running.process.send_signal(number)
    running.wait_until(lambda: running.signals == "SIGINT")
    assert running.end()[0] == expected


def test_second_signal_interrupts_the_child_again_and_third_kills_it(running: RunningCommand) -> None:
    (running.folder / "listen").touch()
    running.wait_for_file("listening")
    running.process.send_signal(signal.SIGINT)
    running.wait_until(lambda: running.signals == "SIGINT")
    running.process.send_signal(signal.SIGINT)
    running.wait_until(lambda: running.signals == "SIGINT SIGINT")
    running.process.send_signal(signal.SIGINT)
    _, output = running.process.communicate(timeout=TIMEOUT_SECONDS)
    assert running.process.returncode == 130
    assert "make up: stopped; Pulumi ended with -9" in output


def test_second_signal_terminates_a_child_that_is_not_ready(running: RunningCommand) -> None:
    running.process.send_signal(signal.SIGINT)
    assert running.process.stderr is not None
    running.process.stderr.readline()
    running.process.send_signal(signal.SIGINT)
    running.wait_until(lambda: running.signals == "SIGTERM")
    assert running.end()[0] == 130


@pytest.mark.parametrize("running", ["finishing"], indirect=True)
def test_finish_before_stopping_does_not_pass_the_first_signal_to_the_child(running: RunningCommand) -> None:
    (running.folder / "listen").touch()
    running.wait_for_file("listening")
    running.process.send_signal(signal.SIGINT)
    assert running.process.stderr is not None
    assert "stopping" in running.process.stderr.readline()
    status, output = running.end()
    assert (status, running.signals) == (130, "")
    assert (running.folder / "status").read_text(encoding="utf-8") == "0 False"
    assert "make up: stopped; nothing has changed" in output


def test_killed_command_sends_its_child_sigint(running: RunningCommand) -> None:
    (running.folder / "listen").touch()
    running.wait_for_file("listening")
    running.process.kill()
    running.wait_until(lambda: running.signals == "SIGINT")
    (running.folder / "end").touch()


@pytest.fixture
def stopping(tmp_path: Path) -> Iterator[RunningCommand]:
    """Yield a `make down` that is removing a cluster. The removal ends when the file `end` exists."""
    script = """
import sys, time
from pathlib import Path
from commands import down, interrupts
from infra.local import lifecycle
from infra.local.settings import stack_cluster

def stop(_cluster):
    (folder / "begun").touch()
    while not (folder / "end").exists():
        time.sleep(0.01)
    (folder / "finished").touch()
    return True

folder = Path(sys.argv[1])
lifecycle.stop = stop
interrupts.REPORT_SECONDS = 0.2
sys.exit(interrupts.run_command("make down", lambda: int(not down.stop_cluster(stack_cluster("/checkout", "mine")))))
"""
    words = [sys.executable, "-c", script, str(tmp_path)]
    with subprocess.Popen(words, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        found = RunningCommand(tmp_path, process)
        found.wait_for_file("begun")
        yield found
        process.kill()


def test_first_signal_during_down_reports_progress_and_finishes_the_removal(stopping: RunningCommand) -> None:
    stopping.process.send_signal(signal.SIGINT)
    assert stopping.process.stderr is not None
    assert "make down finishes the removal of the cluster of stack mine" in stopping.process.stderr.readline()
    assert "still waiting for the removal of the cluster of stack mine" in stopping.process.stderr.readline()
    assert not (stopping.folder / "finished").exists()
    assert stopping.end()[0] == 130
    assert (stopping.folder / "finished").exists()


def test_second_signal_during_down_aborts_the_removal(stopping: RunningCommand) -> None:
    stopping.process.send_signal(signal.SIGINT)
    assert stopping.process.stderr is not None
    stopping.process.stderr.readline()
    stopping.process.send_signal(signal.SIGINT)
    _, output = stopping.process.communicate(timeout=TIMEOUT_SECONDS)
    assert stopping.process.returncode == 130
    assert "Traceback" not in output
    assert not (stopping.folder / "finished").exists()


def test_ctrl_c_in_a_terminal_interrupts_the_child_once(tmp_path: Path) -> None:
    (tmp_path / "child.py").write_text(CHILD_PROGRAM, encoding="utf-8")
    (tmp_path / "listen").touch()
    words = [sys.executable, "-c", COMMAND_PROGRAM, str(tmp_path), "plain"]
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(ROOT)
        os.execv(words[0], words)
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while not (tmp_path / "listening").exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.write(terminal, b"\x03")
    while not (tmp_path / "signals").exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    (tmp_path / "end").touch()
    output = b""
    while b"make up: stopped" not in output:
        output += os.read(terminal, 4096)
    _, status = os.waitpid(pid, 0)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(status) == 130
    assert (tmp_path / "signals").read_text(encoding="utf-8") == "SIGINT "


def test_import_interrupted_by_sigint_prints_one_line() -> None:
    words = [sys.executable, "-c", "import commands, os, signal; os.kill(os.getpid(), signal.SIGINT)"]
    done = subprocess.run(words, cwd=ROOT, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (-signal.SIGINT, "stopped\n")


def test_python_start_interrupted_under_make_prints_one_line() -> None:
    start = next(line for line in (ROOT / "Makefile").read_text(encoding="utf-8").splitlines() if "BLOCK :=" in line)
    code = "import sys; print(flush=True); sys.stdin.read(); import commands"
    words = ["env", "--block-signal=INT", sys.executable, "-c", code]
    assert words[1] in start
    pipe = subprocess.PIPE
    with subprocess.Popen(words, cwd=ROOT, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, output = process.communicate(timeout=TIMEOUT_SECONDS)
    assert (process.returncode, output) == (-signal.SIGINT, "stopped\n")


MASK_PROGRAM = f"""#!{sys.executable}
import signal, sys
print(signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, []), sys.argv[4:])
"""
"""Program that prints True if SIGINT was blocked at its start, and its last arguments.

It is not a shell script, because the shell dash unblocks SIGINT at its start.
"""


def test_trainyard_starts_python_with_interrupts_blocked(tmp_path: Path) -> None:
    environment = tmp_path / "environment"
    environment.mkdir()
    for name, text in (
        ("trainyard", (ROOT / "trainyard" / "bin" / "trainyard").read_text(encoding="utf-8")),
        ("python", MASK_PROGRAM),
    ):
        (environment / name).write_text(text, encoding="utf-8")
        (environment / name).chmod(0o755)
    # `make install` and `uv tool install` put a link on PATH.
    (tmp_path / "trainyard").symlink_to(environment / "trainyard")
    done = subprocess.run([tmp_path / "trainyard", "logs", "a b"], capture_output=True, text=True, check=True)
    assert done.stdout == "True ['logs', 'a b']\n"


def test_trainyard_that_is_not_installed_says_how_to_install_it() -> None:
    done = subprocess.run([ROOT / "trainyard" / "bin" / "trainyard", "up"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("trainyard: this file runs only after installation; run `make install`")
    assert done.stderr.count("\n") == 1


def test_trainyard_unblocks_interrupts_before_it_updates_the_environment(tmp_path: Path) -> None:
    for name in ("commands", "setup"):
        (tmp_path / name).mkdir()
    for name in ("commands/cli.py", "requirements.txt"):
        (tmp_path / name).touch()
    script = tmp_path / "setup" / "python"
    script.write_text(f"{MASK_PROGRAM}sys.exit(1)\n", encoding="utf-8")
    script.chmod(0o755)
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); import trainyard; trainyard.main()"
    words = ["env", "--block-signal=INT", sys.executable, "-P", "-c", code]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "False []\n")


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (OSError(errno.ENOSPC, "No space left on device", "/f"), "/f: No space left on device; free some disk space,"),
        (OSError(errno.ENOSPC, "No space left on device"), "a file: No space left on device; free some disk space,"),
        (OSError(errno.EROFS, "Read-only file system", "/f"), "/f: Read-only file system; mount the file system"),
        (OSError(errno.ELOOP, "Too many links", "/f"), "/f: Too many links; check that path,"),
        (OSError(errno.ENOENT, "No such file or directory", "pulumi"), "pulumi is not installed; run `make setup`, "),
    ],
)
def test_file_error_has_the_path_and_what_to_do(error: OSError, text: str) -> None:
    assert describe_file_error(error).startswith(text)


def test_full_disk_error_without_a_path_names_a_folder_on_the_disk(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(interrupts, "FULL_BYTES", 1 << 60)
    monkeypatch.chdir(tmp_path)
    error = OSError(errno.ENOSPC, "No space left on device")
    assert describe_file_error(error).startswith(f"a file on the disk of {tmp_path}: No space left on device;")


def test_repeated_sighup_of_a_closing_terminal_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interrupts, "_signals", [])
    monkeypatch.setattr(interrupts, "_held_since", [0])
    for number in (signal.SIGHUP, signal.SIGHUP, signal.SIGINT, signal.SIGINT):
        interrupts._on_signal(number, None)
    assert interrupts._signals == [signal.SIGHUP, signal.SIGINT, signal.SIGINT]


FAILING_PROGRAM = """
import errno, sys
from commands.interrupts import run_command

def main():
    if sys.argv[1] == "pipe":
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")
    open("/")

sys.exit(run_command("trainyard fetch", main))
"""


@pytest.mark.parametrize(
    ("error", "text"),
    [("pipe", ""), ("file", "trainyard fetch: /: Is a directory; that path must be a file; move the folder away\n")],
)
def test_command_that_fails_on_a_file_or_pipe_prints_no_traceback(error: str, text: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FAILING_PROGRAM, error], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (1, "", text)


FOLLOWER_PROGRAM = """
import os, sys
from commands.interrupts import ExitStatus, run_command

def main():
    try:
        os.kill(os.getpid(), int(sys.argv[1]))
    except KeyboardInterrupt:
        return ExitStatus.INTERRUPTED

sys.exit(run_command("trainyard logs", main))
"""


@pytest.mark.parametrize(("number", "expected"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_command_that_handles_a_signal_itself_ends_with_the_status_of_this_signal(number: int, expected: int) -> None:
    done = subprocess.run([sys.executable, "-c", FOLLOWER_PROGRAM, str(int(number))], cwd=ROOT, check=False)
    assert done.returncode == expected
