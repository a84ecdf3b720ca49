"""Ctrl-C in commands that only read a stack: one line of output, status 130, no traceback."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from commands.environment import PROJECT
from commands.interrupts import STILL_RUNNING
from tests.commands.test_shell import KUBECONFIG, backend_of_deployed_stack, shell_environment


def deployed_stack_environment(port: int, folder: Path) -> dict[str, str]:
    """Return the environment of a deployed stack whose API server is `127.0.0.1:port`."""
    kubeconfig = folder / "kubeconfig"
    server = {"name": "there", "cluster": {"server": f"http://127.0.0.1:{port}"}}
    kubeconfig.write_text(json.dumps({**KUBECONFIG, "clusters": [server]}), encoding="utf-8")
    return shell_environment(
        backend_of_deployed_stack(folder, kubeconfig, jobs=["digits"], run_records={}, bucket_url=f"file://{folder}")
    )


EXEC_PROGRAM = """
import sys
from commands.interrupts import run_command
from commands.jobs import open_shell

sys.exit(run_command("make exec", lambda: open_shell([])))
"""


@pytest.mark.parametrize(
    ("program", "ending"),
    [
        (("-m", "commands.status"), STILL_RUNNING),
        (("-m", "commands.follow"), "job digits continues"),
        (("-c", EXEC_PROGRAM), STILL_RUNNING),
    ],
    ids=["status", "logs", "exec"],
)
def test_ctrl_c_during_a_cluster_request_prints_one_line_and_exits_130(
    tmp_path: Path, program: tuple[str, str], ending: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        environment = deployed_stack_environment(server.getsockname()[1], tmp_path)
        words = [sys.executable, *program]
        with subprocess.Popen(
            words, cwd=PROJECT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as process:
            # The command has connected and waits for an answer that never comes.
            connection, _ = server.accept()
            process.send_signal(signal.SIGINT)
            text = process.communicate(timeout=60)[0]
            connection.close()
    assert process.returncode == 130, text
    assert len(text.splitlines()) == 1, text
    assert "stopped" in text
    assert ending in text


def test_ctrl_c_in_tensorboard_prints_one_line_and_exits_130(tmp_path: Path) -> None:
    environment = deployed_stack_environment(9, tmp_path)
    program = tmp_path / "tensorboard"
    # Like TensorBoard during its imports, the program prints a traceback at Ctrl-C.
    code = "import time; print('serves', flush=True); time.sleep(600)"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{code}"\n', encoding="utf-8")
    program.chmod(0o755)
    script = (
        "import pathlib, sys; from commands import interrupts, profile; "
        f"profile.TENSORBOARD = pathlib.Path({str(program)!r}); "
        "sys.exit(interrupts.run_command('make tensorboard', profile.serve_tensorboard))"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script],
        cwd=PROJECT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "serves\n"
        # A terminal sends the signal to every process of the command.
        os.killpg(process.pid, signal.SIGINT)
        text = process.communicate(timeout=60)[0]
    assert (process.returncode, text) == (130, f"make tensorboard: stopped; {STILL_RUNNING}\n")
