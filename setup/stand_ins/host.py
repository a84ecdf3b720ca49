"""Stand-in for Pulumi's Python language host: tells the engine about a Python program, and runs the program."""

# ruff: noqa: ARG002 - the protocol gives every method a request and a context

import json
import os
import platform
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import IO

import grpc
from google.protobuf import empty_pb2
from pulumi.runtime.proto import language_pb2, language_pb2_grpc, plugin_pb2

from setup import plugin_process

ROOT = Path(__file__).resolve().parents[2]
EXECUTE = Path(__file__).with_name("execute.py")
ERROR_WAS_PRINTED = 32
"""Exit code of `execute.py` after it has printed the program's error."""
POLICY_PACK = "analyzer"

LIST_PACKAGES = (
    "import json; from importlib import metadata; "
    "print(json.dumps([[d.metadata['Name'], d.version] for d in metadata.distributions()]))"
)


class PythonLanguageHost(language_pb2_grpc.LanguageRuntimeServicer):
    """Language host for one engine. A program runs as a child process that cannot outlive this process."""

    def __init__(self, *, engine_address: str) -> None:
        self._engine_address = engine_address
        self._children: set[subprocess.Popen[bytes]] = set()

    def Handshake(
        self, request: language_pb2.LanguageHandshakeRequest, context: grpc.ServicerContext
    ) -> language_pb2.LanguageHandshakeResponse:
        """Store the engine's address if it was not on the command line."""
        self._engine_address = request.engine_address or self._engine_address
        return language_pb2.LanguageHandshakeResponse()

    def GetPluginInfo(self, request: empty_pb2.Empty, context: grpc.ServicerContext) -> plugin_pb2.PluginInfo:
        """Return no version. The real host returns the CLI's version, which the engine ignores."""
        return plugin_pb2.PluginInfo()

    def GetRequiredPlugins(
        self, request: language_pb2.GetRequiredPluginsRequest, context: grpc.ServicerContext
    ) -> language_pb2.GetRequiredPluginsResponse:
        """Return no plugins. The engine finds or installs each one when a resource first needs it."""
        return language_pb2.GetRequiredPluginsResponse()

    def GetRequiredPackages(
        self, request: language_pb2.GetRequiredPackagesRequest, context: grpc.ServicerContext
    ) -> language_pb2.GetRequiredPackagesResponse:
        """Return no packages, as for GetRequiredPlugins."""
        return language_pb2.GetRequiredPackagesResponse()

    def RuntimeOptionsPrompts(
        self, request: language_pb2.RuntimeOptionsRequest, context: grpc.ServicerContext
    ) -> language_pb2.RuntimeOptionsResponse:
        """Return no prompts for `pulumi new`, which the stand-in does not support."""
        return language_pb2.RuntimeOptionsResponse()

    def About(self, request: language_pb2.AboutRequest, context: grpc.ServicerContext) -> language_pb2.AboutResponse:
        """Return the program's interpreter. If the request names no program, return this process's interpreter."""
        python = _python_or_abort(request.info, context) if request.HasField("info") else Path(sys.executable)
        return language_pb2.AboutResponse(
            executable=str(python), version=_version(python), metadata={"toolchain": "pip", "stand-in": "true"}
        )

    def GetProgramDependencies(
        self, request: language_pb2.GetProgramDependenciesRequest, context: grpc.ServicerContext
    ) -> language_pb2.GetProgramDependenciesResponse:
        """Return the packages in the program's environment."""
        python = _python_or_abort(request.info, context)
        listed = subprocess.run([python, "-c", LIST_PACKAGES], check=True, capture_output=True, text=True).stdout
        return language_pb2.GetProgramDependenciesResponse(
            dependencies=[
                language_pb2.DependencyInfo(name=name, version=version) for name, version in json.loads(listed)
            ]
        )

    def InstallDependencies(
        self, request: language_pb2.InstallDependenciesRequest, context: grpc.ServicerContext
    ) -> Iterator[language_pb2.InstallDependenciesResponse]:
        """Install requirements.txt into the program's environment, which must exist."""
        python = _python_or_abort(request.info, context)
        requirements = Path(request.info.program_directory) / "requirements.txt"
        if not requirements.exists():
            yield language_pb2.InstallDependenciesResponse(stdout=f"No {requirements}: nothing to install\n".encode())
            return
        command = [str(python), "-m", "pip", "install", "-r", str(requirements)]
        child = self._start(command, cwd=request.info.program_directory, python=python, pipes=True)
        for stream, chunk in _output(child):
            yield language_pb2.InstallDependenciesResponse(**{stream: chunk})
        if self._finish(child) != 0:
            context.abort(grpc.StatusCode.UNKNOWN, f"{' '.join(command)} failed: exit code {child.returncode}")

    def Run(self, request: language_pb2.RunRequest, context: grpc.ServicerContext) -> language_pb2.RunResponse:
        """Run the program. Its output goes to this process's output, which the engine reads."""
        try:
            python = program_python(request.info)
        except InterpreterMissing as error:
            return language_pb2.RunResponse(error=str(error))
        environment = {
            "PULUMI_CONFIG": json.dumps(dict(request.config)),
            "PULUMI_CONFIG_SECRET_KEYS": json.dumps(list(request.configSecretKeys)),
        }
        arguments = {
            "monitor": request.monitor_address,
            "engine": self._engine_address,
            "project": request.project,
            "root_directory": request.info.root_directory,
            "stack": request.stack,
            "pwd": request.pwd,
            "dry_run": "true" if request.dryRun else "false",
            "parallel": str(request.parallel),
            "organization": request.organization,
        }
        options = [word for key, value in arguments.items() if value for word in (f"--{key}", value)]
        command = [*_attached_command(python), str(EXECUTE), *options, request.info.entry_point, *request.args]
        child = self._start(command, cwd=request.info.program_directory, python=python, environment=environment)
        context.add_callback(child.terminate)  # Terminate the program if the engine cancels the call.
        code = self._finish(child)
        if code == ERROR_WAS_PRINTED:
            return language_pb2.RunResponse(bail=True)
        if code < 0:
            return language_pb2.RunResponse(error=f"signal {-code} ended the program")
        return language_pb2.RunResponse(error=f"program exited with non-zero exit code: {code}" if code else "")

    def RunPlugin(
        self, request: language_pb2.RunPluginRequest, context: grpc.ServicerContext
    ) -> Iterator[language_pb2.RunPluginResponse]:
        """Run a plugin from its folder: a policy pack with the SDK's policy host, others with their __main__.py."""
        python = _python_or_abort(request.info, context)
        folder = request.info.program_directory
        if request.kind == POLICY_PACK:
            command = [*_attached_command(python), "-m", "pulumi.policy", *request.args, folder]
        else:
            command = [*_attached_command(python), folder, *request.args]
        environment = dict(word.split("=", 1) for word in request.env if "=" in word)
        child = self._start(command, cwd=request.pwd, python=python, environment=environment, pipes=True)
        context.add_callback(child.terminate)
        for stream, chunk in _output(child):
            text = {"stdout": chunk} if stream == "stdout" else {"stderr": chunk}
            yield language_pb2.RunPluginResponse(**text)  # type: ignore[arg-type]  # mypy cannot check the keys
        yield language_pb2.RunPluginResponse(exitcode=self._finish(child))

    def Cancel(self, request: empty_pb2.Empty, context: grpc.ServicerContext) -> empty_pb2.Empty:
        """Terminate all child processes. The engine calls this when the user interrupts an update."""
        for child in list(self._children):
            child.terminate()
        return empty_pb2.Empty()

    def _start(
        self,
        command: list[str],
        *,
        cwd: str,
        python: Path,
        environment: dict[str, str] | None = None,
        pipes: bool = False,
    ) -> subprocess.Popen[bytes]:
        child = subprocess.Popen(
            command,
            cwd=cwd or None,
            env=program_environment(python) | (environment or {}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if pipes else None,
            stderr=subprocess.PIPE if pipes else None,
        )
        self._children.add(child)
        return child

    def _finish(self, child: subprocess.Popen[bytes]) -> int:
        code = child.wait()
        self._children.discard(child)
        return code


def _version(python: Path) -> str:
    """Return the version of an interpreter.

    Every `up` asks for the version, so start no process for the interpreter that runs this file.
    """
    if python.resolve() == Path(sys.executable).resolve():
        return platform.python_version()
    output = subprocess.run([python, "--version"], check=True, capture_output=True, text=True).stdout
    return output.split()[-1]


def _attached_command(python: Path) -> list[str]:
    """Return the start of a command for a plugin process that ends with this process."""
    return [str(python), "-u", plugin_process.__file__]


def _python_or_abort(info: language_pb2.ProgramInfo, context: grpc.ServicerContext) -> Path:
    try:
        return program_python(info)
    except InterpreterMissing as error:
        context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        raise


def _output(child: subprocess.Popen[bytes]) -> Iterator[tuple[str, bytes]]:
    """Yield the child's output as it arrives: ("stdout" or "stderr", bytes), until both are closed."""
    chunks: SimpleQueue[tuple[str, bytes]] = SimpleQueue()

    def pump(stream: str, pipe: IO[bytes]) -> None:
        while chunk := pipe.read1():  # type: ignore[attr-defined]  # IO lacks read1, but Popen's pipes have it
            chunks.put((stream, chunk))
        chunks.put((stream, b""))

    assert child.stdout is not None
    assert child.stderr is not None
    for stream, pipe in (("stdout", child.stdout), ("stderr", child.stderr)):
        threading.Thread(target=pump, args=(stream, pipe), daemon=True).start()
    open_pipes = 2
    while open_pipes:
        stream, chunk = chunks.get()
        if chunk:
            yield stream, chunk
        else:
            open_pipes -= 1


class InterpreterMissing(Exception):
    """Error for a program without a Python interpreter that the stand-in can use. The message contains the remedy."""


def program_python(info: language_pb2.ProgramInfo) -> Path:
    """Return the interpreter of the program's virtual environment.

    Without one, return `$PULUMI_PYTHON_CMD`, by default `python3`, from PATH.
    """
    options = dict(info.options)
    if options.get("toolchain", "pip") != "pip":
        raise InterpreterMissing(
            f"runtime.options.toolchain = {options['toolchain']!r}: must be 'pip' with this stand-in; set it to 'pip' "
            "with a virtualenv, or install the real pulumi-language-python"
        )
    if virtualenv := options.get("virtualenv"):
        folder = Path(info.root_directory) / str(virtualenv)
        if not (folder / "bin" / "python").exists():
            raise InterpreterMissing(
                f"The 'virtualenv' option in Pulumi.yaml is set to {str(virtualenv)!r}, but {folder} is not a "
                "virtual environment. Create it and install requirements.txt in it."
            )
        return folder / "bin" / "python"
    found = shutil.which(os.environ.get("PULUMI_PYTHON_CMD", "python3"))
    if found is None:
        raise InterpreterMissing(
            "No python3 on PATH, and no runtime.options.virtualenv in Pulumi.yaml. Set the option, or install Python."
        )
    return Path(found)


def program_environment(python: Path) -> dict[str, str]:
    """Return the environment of the program. Its virtual environment is active, and PYTHONPATH omits this checkout."""
    environment = dict(os.environ)
    paths = [path for path in environment.pop("PYTHONPATH", "").split(os.pathsep) if path and Path(path) != ROOT]
    if paths:
        environment["PYTHONPATH"] = os.pathsep.join(paths)
    if (python.parent.parent / "pyvenv.cfg").exists():
        environment["VIRTUAL_ENV"] = str(python.parent.parent)
        environment["PATH"] = os.pathsep.join([str(python.parent), environment.get("PATH", os.defpath)])
        environment.pop("PYTHONHOME", None)
    environment["PYTHONUNBUFFERED"] = "1"
    return environment
