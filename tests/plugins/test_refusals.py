"""What is refused and how it is said: programs that fail, kinds and fields that do not exist, clusters out of reach."""

import json
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pulumi.runtime.proto import provider_pb2
from setup.stand_ins.kubernetes import apply, lifecycle
from setup.stand_ins.kubernetes.configuration import read
from setup.stand_ins.kubernetes.operation import OperationFailed
from setup.stand_ins.kubernetes.session import Session

from setup.plugin_protocol import Engine
from tests.plugins.api_server import ApiServer, free_port
from tests.plugins.stack import Stack

NewStack = Callable[[str], Stack]


def test_a_program_that_raises_shows_its_own_traceback_once(new_stack: NewStack) -> None:
    stack = new_stack("def broken():\n    raise LookupError('no such recipe')\n\nbroken()\n")
    output = stack.run("preview", fails=True)
    diagnostics = output[output.index("Diagnostics:") :]
    assert diagnostics.count("LookupError: no such recipe") == 1
    assert "in broken" in diagnostics
    assert "stand_ins" not in diagnostics[diagnostics.index("Traceback") :].split("LookupError")[0]
    stack.write('raise pulumi.RunError("hosts is 0: give at least 1")\n')
    output = stack.run("preview", fails=True)
    assert "error: hosts is 0: give at least 1" in output
    assert "Traceback" not in output
    stack.write("import pulumi.nowhere\n")
    assert "No module named 'pulumi.nowhere'" in stack.run("preview", fails=True)


def test_what_a_program_prints_is_shown(new_stack: NewStack) -> None:
    stack = new_stack("""
import sys
print("on stdout", pulumi.get_stack(), pulumi.get_project(), pulumi.runtime.is_dry_run())
print("on stderr", file=sys.stderr)
pulumi.log.warn("a warning")
""")
    output = stack.run("preview")
    assert "on stdout test stand-ins True" in output
    assert "on stderr" in output
    assert "warning: a warning" in output


def test_a_field_that_the_kind_does_not_have_is_refused_in_the_preview(new_stack: NewStack) -> None:
    stack = new_stack("""
k8s.apiextensions.CustomResource("typo", api_version="networking.k8s.io/v1", kind="NetworkPolicy", opts=on,
    metadata=meta("typo"), spec={"podSelektor": {}, "podSelector": {}})
""")
    output = stack.run("preview", fails=True)
    assert 'unknown field "spec.podSelektor"' in output
    assert "Traceback" not in output
    # By itself: the engine may end a preview at the first error.
    stack.write('k8s.core.v1.Service("low", metadata=meta("low"), spec={"ports": [{"port": 0}]}, opts=on)')
    output = stack.run("preview", fails=True)
    assert "spec.ports[0].port: Invalid value: 0" in output
    assert "Traceback" not in output


def test_an_unknown_kind_is_named(
    new_stack: NewStack, api_server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    monkeypatch.setattr(apply, "RETRY_PAUSES", (0.0,))
    stack = new_stack("""
k8s.apiextensions.CustomResource("job", api_version="kubeflow.org/v1", kind="PyTorchJob", metadata=meta("j"), opts=on)
""")
    assert stack.operations() == {"job": "create"}
    settings = read({"kubernetes:config:kubeconfig": str(api_server.kubeconfig)}, accept_secrets=True)
    session = Session(settings, Engine(""))
    request = provider_pb2.CreateRequest(urn="urn:pulumi:t::t::kubernetes:kubeflow.org/v1:PyTorchJob::job")
    manifest = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "j"}}
    with pytest.raises(OperationFailed) as raised:
        lifecycle.create(session, request, manifest)
    assert 'no matches for kind "PyTorchJob" in version "kubeflow.org/v1"' in str(raised.value)
    assert "Verify that any required CRDs have been created" in str(raised.value)


def test_a_cluster_out_of_reach_is_previewed_and_refused_by_up(new_stack: NewStack) -> None:
    stack = new_stack('k8s.core.v1.ConfigMap("settings", metadata=meta(), data={"a": "b"}, opts=on)\n')
    config = json.loads(stack.kubeconfig.read_text())
    config["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{free_port()}"
    stack.kubeconfig = stack.folder / "unreachable.kubeconfig"
    stack.kubeconfig.write_text(json.dumps(config))
    assert stack.operations() == {"settings": "create"}
    output = stack.up(fails=True)
    assert "configured Kubernetes cluster is unreachable" in output
    assert "Connection refused" in output


def processes_of(stack: Stack) -> list[str]:
    """The command lines of all processes that were started for this stack."""
    mark = f"PULUMI_HOME={stack.folder / 'home'}".encode()
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (process / "environ").read_bytes().split(b"\0"):
                found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue  # it has ended meanwhile
    return found


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_no_stand_in_outlives_its_engine(new_stack: NewStack, number: signal.Signals) -> None:
    stack = new_stack("""
k8s.batch.v1.Job("job", metadata=meta("job"), opts=on, spec={
    "template": {"spec": {"restart_policy": "Never", "containers": [{"name": "c", "image": "i"}]}}})
""")
    engine = stack.start("up", "--yes", "--skip-preview")
    deadline = time.monotonic() + 60
    while not stack.batch().list_namespaced_job(stack.namespace).items:
        assert engine.poll() is None, engine.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.2)
    running = "\n".join(processes_of(stack))
    assert "setup.stand_ins.kubernetes" in running
    assert "execute.py" in running
    engine.send_signal(number)
    output, _ = engine.communicate(timeout=60)
    deadline = time.monotonic() + 60
    while (left := processes_of(stack)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert left == []
    if number == signal.SIGINT:
        assert "cancelled" in output
        assert stack.state()["job"]["id"] == f"{stack.namespace}/job"
