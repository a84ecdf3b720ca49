"""Official Pulumi plugin that checks and plans resources without credentials or access to a cloud."""

from __future__ import annotations

import json
import os
import select
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any

import grpc
from google.protobuf import empty_pb2
from pulumi.runtime.proto import engine_pb2, engine_pb2_grpc, provider_pb2, provider_pb2_grpc

from commands.environment import stack_environment
from commands.review.recorded import Record
from infra.make_command import make_command
from setup.plugin_process import CHANNEL_OPTIONS
from setup.pulumi_cli import RELEASE_URL, has_cli
from setup.releases import DownloadError, Downloads
from simulation.cloud.values import from_wire, to_wire

START_SECONDS, CALL_SECONDS, INSTALL_SECONDS = 120, 120, 900
CLOSED_PROXY = "http://127.0.0.1:9"
"""Address on which no program listens. A plugin that calls a cloud by mistake gets an error, not an answer."""
HIDDEN_PREFIXES = ("AWS_", "GOOGLE_", "GCLOUD_", "CLOUDSDK_", "PULUMI_", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
"""Prefixes of the environment variables that a plugin does not get."""
OFFLINE_SETTINGS: Mapping[str, Mapping[str, str]] = {
    # https://www.pulumi.com/registry/packages/gcp/installation-configuration/
    "gcp": {"accessToken": "none", "skipRegionValidation": "true", "disableGlobalProjectWarning": "true"},
    # https://www.pulumi.com/registry/packages/aws/installation-configuration/
    "aws": {
        "accessKey": "none",
        "secretKey": "none",
        "skipCredentialsValidation": "true",
        "skipMetadataApiCheck": "true",
        "skipRegionValidation": "true",
        "skipRequestingAccountId": "true",
    },
}
"""Package -> settings that keep its plugin from reading credentials and calling the cloud."""
Properties = dict[str, Any]


class PluginMissing(Exception):
    """A plugin is missing and cannot be installed."""


class PluginDied(Exception):
    """A plugin crashed or did not answer."""


class PluginRejected(Exception):
    """A plugin returned an error."""


def installed(package: str) -> Path:
    """Return the program of the plugin that fits a package's SDK. Install a missing plugin. Raises PluginMissing."""
    version = metadata.version(f"pulumi-{package}")
    home = Path(os.environ.get("PULUMI_HOME") or Path.home() / ".pulumi")
    program = home / "plugins" / f"resource-{package}-v{version}" / f"pulumi-resource-{package}"
    if program.exists():
        return program
    if not has_cli():
        raise PluginMissing(f"it cannot be installed without `pulumi`; run {make_command('setup', STACK='')}")
    try:
        Downloads().probe(RELEASE_URL)
    except DownloadError as error:
        raise PluginMissing(f"it cannot be downloaded ({error})") from error
    command = ["pulumi", "plugin", "install", "resource", package, version]
    try:
        done = subprocess.run(
            command, env=stack_environment(), capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise PluginMissing(f"`{' '.join(command)}` took more than {INSTALL_SECONDS} s") from error
    if done.returncode != 0 or not program.exists():
        reason = (done.stderr.strip().splitlines() or ["no error message"])[-1]
        raise PluginMissing(f"`{' '.join(command)}` failed: {reason}")
    return program


class _Engine(engine_pb2_grpc.EngineServicer):
    """Server that keeps the warnings and errors that a plugin logs."""

    def __init__(self) -> None:
        self.warnings: list[str] = []

    def Log(self, request: engine_pb2.LogRequest, _context: grpc.ServicerContext) -> empty_pb2.Empty:
        """Keep a warning or an error."""
        if request.severity in (engine_pb2.WARNING, engine_pb2.ERROR) and not request.ephemeral:
            self.warnings.append(request.message.strip())
        return empty_pb2.Empty()


class Plugin:
    """Running plugin."""

    def __init__(self, stub: provider_pb2_grpc.ResourceProviderStub, engine: _Engine, stderr: Path) -> None:
        self._stub = stub
        self._engine = engine
        self._stderr = stderr

    @property
    def warnings(self) -> list[str]:
        """Warnings so far, each once."""
        return list(dict.fromkeys(self._engine.warnings))

    def configure(self, package: str, settings: Mapping[str, Any]) -> None:
        """Configure the plugin without credentials. Raises PluginDied, and PluginRejected for invalid settings."""
        all_settings = {**settings, **OFFLINE_SETTINGS.get(package, {})}
        texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in all_settings.items()}
        variables = {f"{package}:config:{key}": value for key, value in texts.items()}
        self._call(
            "Configure",
            provider_pb2.ConfigureRequest(variables=variables, args=to_wire(all_settings), sends_old_inputs=True),
        )

    def check(self, record: Record, news: Properties) -> tuple[Properties, list[str]]:
        """Return the completed inputs and their problems."""
        request = provider_pb2.CheckRequest(
            urn=urn_of(record), news=to_wire(news), randomSeed=bytes(32), **_names(record)
        )
        found = self._call("Check", request)
        wrong = [f"{each.property}: {each.reason}" if each.property else each.reason for each in found.failures]
        return from_wire(found.inputs), wrong

    def planned(self, record: Record, inputs: Properties) -> Properties:
        """Return the state of a resource with these inputs after its creation. Values from the cloud are unknown."""
        request = provider_pb2.CreateRequest(
            urn=urn_of(record), properties=to_wire(inputs), preview=True, **_names(record)
        )
        found: Properties = from_wire(self._call("Create", request).properties)
        return found

    def diff(self, record: Record, state: Properties, olds: Properties, news: Properties) -> provider_pb2.DiffResponse:
        """Return the plugin's plan for a change from `olds` to `news`."""
        request = provider_pb2.DiffRequest(
            id=str(record.outputs["id"]),
            urn=urn_of(record),
            olds=to_wire(state),
            old_inputs=to_wire(olds),
            news=to_wire(news),
            ignoreChanges=record.ignore_changes,
            **_names(record),
        )
        found: provider_pb2.DiffResponse = self._call("Diff", request)
        return found

    def diff_config(self, record: Record, olds: Properties, news: Properties) -> provider_pb2.DiffResponse:
        """Return the plugin's plan for a change of the provider's own settings."""
        old = to_wire(olds)
        request = provider_pb2.DiffRequest(urn=urn_of(record), olds=old, old_inputs=old, news=to_wire(news))
        found: provider_pb2.DiffResponse = self._call("DiffConfig", request)
        return found

    def _call(self, name: str, request: Any) -> Any:
        try:
            return getattr(self._stub, name)(request, timeout=CALL_SECONDS)
        except grpc.RpcError as error:
            if error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
                raise PluginDied(f"{name}: {error.details()}; {self._panic()}") from error
            raise PluginRejected(str(error.details())) from error

    def _panic(self) -> str:
        """Return the line of standard error that begins with `panic`, else the last line."""
        lines = self._stderr.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return next((line for line in lines if line.startswith("panic")), lines[-1] if lines else "it printed nothing")


def urn_of(record: Record) -> str:
    """Return a URN for a recorded resource."""
    return f"urn:pulumi:preview::trainyard::{record.type}::{record.name}"


def _names(record: Record) -> dict[str, Any]:
    return {"name": record.name, "type": record.type}


@contextmanager
def started(program: Path) -> Iterator[Plugin]:
    """Run the plugin `program` during the `with` block. Raises PluginDied if it does not start."""
    engine = _Engine()
    server = grpc.server(ThreadPoolExecutor(max_workers=4))
    engine_pb2_grpc.add_EngineServicer_to_server(engine, server)
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    with tempfile.TemporaryDirectory(prefix="trainyard-plugin-") as folder:
        stderr = Path(folder) / "stderr"
        with stderr.open("wb") as errors:
            process = subprocess.Popen(
                [str(program), address],
                cwd=folder,
                env=_environment(folder),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
            )
        try:
            options = [*CHANNEL_OPTIONS, ("grpc.enable_http_proxy", 0)]
            channel = grpc.insecure_channel(f"127.0.0.1:{_port(process, stderr)}", options=options)
            yield Plugin(provider_pb2_grpc.ResourceProviderStub(channel), engine, stderr)
            channel.close()
        finally:
            process.kill()
            process.communicate()
            server.stop(None)


def _environment(home: str) -> dict[str, str]:
    """Return an environment without credentials or network access, and with temporary files in `home`."""
    kept = {key: value for key, value in os.environ.items() if not key.upper().startswith(HIDDEN_PREFIXES)}
    closed = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), CLOSED_PROXY)
    closed |= dict.fromkeys(("NO_PROXY", "no_proxy"), "127.0.0.1")
    no_metadata = {"AWS_EC2_METADATA_DISABLED": "true", "GCE_METADATA_HOST": "127.0.0.1:9"}
    return {**kept, **closed, **no_metadata, "HOME": home, "TMPDIR": home}


def _port(process: subprocess.Popen[bytes], stderr: Path) -> int:
    """Return the port that the plugin prints first."""
    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], START_SECONDS)
    line = process.stdout.readline().strip() if ready else b""
    if not line.isdigit():
        lines = stderr.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        raise PluginDied(f"it did not start: {lines[-1] if lines else 'it printed nothing'}")
    return int(line)
