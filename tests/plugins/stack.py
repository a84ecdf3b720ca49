"""Stack of a test: its program, the Pulumi commands on it, its state, and a client of its cluster."""

import json
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kubernetes import client, config

from commands.environment import stack_environment
from infra.kubeconfig import PROVIDER_ENVIRONMENT, PROVIDER_TMPDIR

ROOT = Path(__file__).resolve().parents[2]

PREAMBLE = f"""
import os
import pulumi
import pulumi_kubernetes as k8s

namespace = os.environ["TEST_NAMESPACE"]
config = pulumi.Config()
cluster = k8s.Provider(
    "cluster",
    kubeconfig=os.environ["TEST_KUBECONFIG"],
    opts=pulumi.ResourceOptions(env_var_mappings={PROVIDER_ENVIRONMENT}),
)
on_cluster = pulumi.ResourceOptions(provider=cluster)

def edit(name, default):
    return type(default)(os.environ.get(f"EDIT_{{name}}", default))

def meta(name=None, **more):
    return {{"namespace": namespace, **({{"name": name}} if name else {{}}), **more}}
"""
"""Start of each program: the provider `cluster`, resource options `on_cluster` with this provider, and two functions.

`edit(name, default)` returns the command's environment variable EDIT_<name>, or else the default. `meta` returns
metadata in the stack's namespace.
"""


@dataclass
class Stack:
    """Stack of a program in a folder, with a file backend. Its commands have the PATH of the make targets."""

    folder: Path
    kubeconfig: Path
    namespace: str

    def write(self, text: str) -> None:
        """Write the program: PREAMBLE and this text."""
        runtime = {"name": "python", "options": {"virtualenv": str(ROOT / ".venv")}}
        (self.folder / "Pulumi.yaml").write_text(json.dumps({"name": "plugins", "runtime": runtime}))
        (self.folder / "__main__.py").write_text(PREAMBLE + text)
        (self.folder / "backend").mkdir(exist_ok=True)
        for name in ("tmp", "provider"):
            (self.folder / name).mkdir(exist_ok=True)

    def environment(self, **edits: object) -> dict[str, str]:
        """Return the environment of a command, with a proxy that does not answer.

        `edits` are the values that the program reads with `edit`.
        """
        return {
            **stack_environment(),
            "http_proxy": "http://127.0.0.1:9",
            "PULUMI_BACKEND_URL": f"file://{self.folder / 'backend'}",
            "PULUMI_CONFIG_PASSPHRASE": "for tests",
            "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true",
            "TMPDIR": str(self.folder / "tmp"),
            PROVIDER_TMPDIR: str(self.folder / "provider"),
            "TEST_NAMESPACE": self.namespace,
            "TEST_KUBECONFIG": str(self.kubeconfig),
            **{f"EDIT_{name}": str(value) for name, value in edits.items()},
        }

    def start(self, *arguments: str, **edits: object) -> subprocess.Popen[str]:
        """Start a Pulumi command that writes its errors to the same stream as its output."""
        environment = self.environment(**edits)
        pulumi = shutil.which("pulumi", path=environment["PATH"])
        assert pulumi, "the Pulumi CLI is missing; run `make setup`"
        return subprocess.Popen(
            [pulumi, *arguments, "--non-interactive", "--color", "never"],
            cwd=self.folder, env=environment, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip

    def run(self, *arguments: str, fails: bool = False, **edits: object) -> str:
        """Run a Pulumi command and return its output. Assert that the command fails exactly if `fails` is true."""
        process = self.start(*arguments, **edits)
        output, _ = process.communicate(timeout=300)
        assert (process.returncode != 0) == fails, output
        return output

    def up(self, *, fails: bool = False, **edits: object) -> str:
        """Deploy the program with these edits, without a preview."""
        return self.run("up", "--yes", "--skip-preview", fails=fails, **edits)

    def plan(self, **edits: object) -> dict[str, dict[str, Any]]:
        """Return the steps of a preview with these edits, by resource name."""
        process = self.start("preview", "--json", "--show-sames", **edits)
        output, _ = process.communicate(timeout=120)
        assert process.returncode == 0, output
        steps = json.loads(output)["steps"]
        return {step["urn"].split("::")[-1]: step for step in steps}

    def preview_operations(self, **edits: object) -> dict[str, str]:
        """Return the operation of each Kubernetes object in a preview, by resource name."""
        return {
            name: step["op"] for name, step in self.plan(**edits).items() if "pulumi:" not in step["urn"].split("::")[2]
        }

    def state(self) -> dict[str, dict[str, Any]]:
        """Return the resources of the state by name, with secrets in their stored, encrypted form."""
        path = self.folder / "backend" / ".pulumi" / "stacks" / "plugins" / "test.json"
        resources = json.loads(path.read_text())["checkpoint"]["latest"].get("resources", [])
        return {resource["urn"].split("::")[-1]: resource for resource in resources}

    def core(self) -> Any:
        """Return Kubernetes' own client for core objects, which shares no code with the provider."""
        return client.CoreV1Api(self._client())

    def batch(self) -> Any:
        """Return Kubernetes' own client for Jobs."""
        return client.BatchV1Api(self._client())

    def custom(self) -> Any:
        """Return Kubernetes' own client for custom resources."""
        return client.CustomObjectsApi(self._client())

    def _client(self) -> Any:
        return config.new_client_from_config(str(self.kubeconfig))  # type: ignore[no-untyped-call]  # has no annotations
