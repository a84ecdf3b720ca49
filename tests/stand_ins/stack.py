"""A stack of a test: its program, the Pulumi commands on it, what its state holds, and the official client beside it."""

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kubernetes import client, config

from tests.stand_ins.api_server import program

ROOT = Path(__file__).resolve().parents[2]
PLUGINS = ROOT / "setup" / "stand_ins" / "bin"

PREAMBLE = """
import os
import pulumi
import pulumi_kubernetes as k8s

namespace = os.environ["TEST_NAMESPACE"]
config = pulumi.Config()
cluster = k8s.Provider("cluster", kubeconfig=os.environ["TEST_KUBECONFIG"])
on = pulumi.ResourceOptions(provider=cluster)

def meta(name=None, **more):
    return {"namespace": namespace, **({"name": name} if name else {}), **more}
"""


@dataclass
class Stack:
    """A program in a folder with a file backend; every command runs in a Pulumi home of its own."""

    folder: Path
    kubeconfig: Path
    namespace: str

    def write(self, text: str) -> None:
        """Set the program: the text after a provider and some names that all programs share."""
        runtime = {"name": "python", "options": {"virtualenv": str(ROOT / ".venv")}}
        (self.folder / "Pulumi.yaml").write_text(json.dumps({"name": "stand-ins", "runtime": runtime}))
        (self.folder / "__main__.py").write_text(PREAMBLE + text)
        (self.folder / "backend").mkdir(exist_ok=True)

    @property
    def environment(self) -> dict[str, str]:
        """What a command sees: the stand-ins first on PATH, and nothing that would reach the network."""
        pulumi = program("pulumi", "TRAINYARD_PULUMI")
        plugins = [str(PLUGINS / name) for name in ("language", "dynamic", "kubernetes")]
        return {
            **os.environ,
            "PATH": os.pathsep.join([*plugins, str(pulumi.parent), os.environ["PATH"]]),
            "PULUMI_HOME": str(self.folder / "home"),
            "PULUMI_BACKEND_URL": f"file://{self.folder / 'backend'}",
            "PULUMI_CONFIG_PASSPHRASE": "for tests",
            "PULUMI_SKIP_UPDATE_CHECK": "true",
            "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true",
            "TEST_NAMESPACE": self.namespace,
            "TEST_KUBECONFIG": str(self.kubeconfig),
        }

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start a Pulumi command; its output is one stream."""
        command = [program("pulumi", "TRAINYARD_PULUMI"), *arguments, "--non-interactive", "--color", "never"]
        return subprocess.Popen(
            command, cwd=self.folder, env=self.environment, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip

    def run(self, *arguments: str, fails: bool = False) -> str:
        """Run a Pulumi command to its end and return its output."""
        process = self.start(*arguments)
        output, _ = process.communicate(timeout=120)
        assert (process.returncode != 0) == fails, output
        return output

    def up(self, *arguments: str, fails: bool = False) -> str:
        """Bring the program up without a preview before it."""
        return self.run("up", "--yes", "--skip-preview", *arguments, fails=fails)

    def plan(self, *arguments: str) -> dict[str, dict[str, Any]]:
        """What a preview would do, by the resource's name."""
        process = self.start("preview", "--json", *arguments)
        output, _ = process.communicate(timeout=120)
        assert process.returncode == 0, output
        steps = json.loads(output[output.index("\n{") :])["steps"]
        return {step["urn"].split("::")[-1]: step for step in steps}

    def operations(self, *arguments: str) -> dict[str, str]:
        """The operations of a preview on the resources that are objects."""
        return {
            name: step["op"]
            for name, step in self.plan(*arguments).items()
            if "pulumi:" not in step["urn"].split("::")[2]
        }

    def state(self) -> dict[str, dict[str, Any]]:
        """The resources of the state by name, secrets encrypted as they lie there."""
        path = self.folder / "backend" / ".pulumi" / "stacks" / "stand-ins" / "test.json"
        resources = json.loads(path.read_text())["checkpoint"]["latest"]["resources"]
        return {resource["urn"].split("::")[-1]: resource for resource in resources}

    def core(self) -> client.CoreV1Api:
        """The official client, which shares no code with the provider."""
        return client.CoreV1Api(self._client())

    def batch(self) -> client.BatchV1Api:
        """The official client for Jobs."""
        return client.BatchV1Api(self._client())

    def custom(self) -> client.CustomObjectsApi:
        """The official client for custom resources."""
        return client.CustomObjectsApi(self._client())

    def _client(self) -> client.ApiClient:
        return config.new_client_from_config(str(self.kubeconfig))
