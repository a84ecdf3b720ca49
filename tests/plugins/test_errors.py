"""Failing programs, invalid objects, unreachable clusters, and processes of plugins after Pulumi ends.

The programs use `cluster`, `on_cluster`, `edit` and `meta` from PREAMBLE in stack.py.
"""

import json
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from bench.measure import free_port
from tests.plugins.stack import Stack

NewStack = Callable[[str], Stack]
"""Type of fixture `new_stack`: a function that creates a stack with a program."""


def test_failing_program_shows_its_own_traceback_once(new_stack: NewStack) -> None:
    stack = new_stack("def broken():\n    raise LookupError('no such recipe')\n\nbroken()\n")
    output = stack.run("preview", fails=True)
    diagnostics = output[output.index("Diagnostics:") :]
    assert diagnostics.count("LookupError: no such recipe") == 1
    assert "in broken" in diagnostics
    traceback = diagnostics[diagnostics.index("Traceback") :].split("LookupError")[0]
    assert "stand_ins" not in traceback, "the traceback must not show the code that runs the program"


def test_program_that_raises_run_error_shows_only_its_message(new_stack: NewStack) -> None:
    output = new_stack('raise pulumi.RunError("hosts is 0: give at least 1")\n').run("preview", fails=True)
    assert "error: hosts is 0: give at least 1" in output
    assert "Traceback" not in output


def test_program_that_imports_a_missing_module_names_the_module(new_stack: NewStack) -> None:
    output = new_stack("import pulumi.nowhere\n").run("preview", fails=True)
    assert "No module named 'pulumi.nowhere'" in output


def test_output_of_a_program_is_shown(new_stack: NewStack) -> None:
    stack = new_stack("""
import sys
print("on stdout", pulumi.get_stack(), pulumi.get_project(), pulumi.runtime.is_dry_run())
print("on stderr", file=sys.stderr)
pulumi.log.warn("a warning")
""")
    output = stack.run("preview")
    assert "on stdout test plugins True" in output
    assert "on stderr" in output
    assert "warning: a warning" in output


def test_unknown_field_of_a_built_in_kind_is_dropped(new_stack: NewStack) -> None:
    stack = new_stack("""
k8s.apiextensions.CustomResource("typo", api_version="networking.k8s.io/v1", kind="NetworkPolicy", opts=on_cluster,
    metadata=meta("typo"), spec={"podSelektor": {}, "podSelector": {}})
""")
    stack.up()
    found = stack.custom().get_namespaced_custom_object(
        "networking.k8s.io", "v1", stack.namespace, "networkpolicies", "typo"
    )
    assert found["spec"] == {"podSelector": {}, "policyTypes": ["Ingress"]}


def test_unknown_field_of_a_custom_kind_is_rejected(new_stack: NewStack) -> None:
    stack = new_stack("""
schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": {"size": {"type": "integer"}}}}}
definition = k8s.apiextensions.v1.CustomResourceDefinition(
    "definition", metadata={"name": "gadgets.test.dev"}, opts=on_cluster, spec={
        "group": "test.dev", "scope": "Namespaced", "names": {"plural": "gadgets", "kind": "Gadget"},
        "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"open_apiv3_schema": schema}}]})
k8s.apiextensions.CustomResource(
    "custom", api_version="test.dev/v1", kind="Gadget", metadata=meta("one"), spec={"size": 3, "sise": 1},
    opts=pulumi.ResourceOptions(provider=cluster, depends_on=[definition]))
""")
    output = stack.up(fails=True)
    assert "failed to create typed patch object" in output
    assert "Kind=Gadget): .spec.sise: field not declared in schema" in output
    stack.run("destroy", "--yes", "--skip-preview")


def test_invalid_value_is_rejected_in_the_preview(new_stack: NewStack) -> None:
    stack = new_stack(
        'k8s.core.v1.Service("low", metadata=meta("low"), spec={"ports": [{"port": 0}]}, opts=on_cluster)'
    )
    output = stack.run("preview", fails=True)
    assert "spec.ports[0].port: Invalid value: 0: must be between 1 and 65535" in output
    assert "Traceback" not in output


def test_change_of_an_immutable_field_is_rejected_until_the_object_is_deleted(new_stack: NewStack) -> None:
    stack = new_stack("""
k8s.batch.v1.Job("job", metadata=meta("job", annotations={"pulumi.com/skipAwait": "true"}), opts=on_cluster, spec={
    "completions": 1, "completion_mode": edit("mode", "Indexed"),
    "template": {"spec": {"restart_policy": "Never", "containers": [{"name": "c", "image": "i"}]}}})
""")
    stack.up()
    for output in (stack.run("preview", fails=True, mode="NonIndexed"), stack.up(fails=True, mode="NonIndexed")):
        assert 'spec.completionMode: Invalid value: "NonIndexed": field is immutable' in output
    stack.run("destroy", "--yes", "--skip-preview", "--target", stack.state()["job"]["urn"])
    stack.up(mode="NonIndexed")
    assert stack.batch().read_namespaced_job("job", stack.namespace).spec.completion_mode == "NonIndexed"


@pytest.mark.long
def test_unknown_kind_fails_the_update_with_a_hint_about_crds(new_stack: NewStack) -> None:
    # The provider waits for a minute, because another resource of the program may define the kind.
    stack = new_stack("""
k8s.apiextensions.CustomResource(
    "job", api_version="kubeflow.org/v1", kind="PyTorchJob", metadata=meta("j"), opts=on_cluster)
""")
    assert stack.preview_operations() == {"job": "create"}
    output = stack.up(fails=True)
    assert "Verify that any required CRDs have been created" in output
    assert 'no matches for kind "PyTorchJob" in version "kubeflow.org/v1"' in output


def test_plugin_is_found_without_a_warning(new_stack: NewStack) -> None:
    output = new_stack('k8s.core.v1.ConfigMap("settings", metadata=meta(), data={"a": "b"}, opts=on_cluster)\n').up()
    assert "warning" not in output
    assert "$PATH" not in output


def test_preview_of_an_unreachable_cluster_succeeds_and_up_fails(new_stack: NewStack) -> None:
    stack = new_stack('k8s.core.v1.ConfigMap("settings", metadata=meta(), data={"a": "b"}, opts=on_cluster)\n')
    config = json.loads(stack.kubeconfig.read_text())
    config["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{free_port()}"
    stack.kubeconfig = stack.folder / "unreachable.kubeconfig"
    stack.kubeconfig.write_text(json.dumps(config))
    assert stack.preview_operations() == {"settings": "create"}
    output = stack.up(fails=True)
    assert "configured Kubernetes cluster is unreachable" in output
    assert "connection refused" in output


def processes_of(stack: Stack) -> list[str]:
    """Return the command lines of all processes that were started for this stack."""
    mark = f"TEST_NAMESPACE={stack.namespace}".encode()
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (process / "environ").read_bytes().split(b"\0"):
                found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue  # The process has ended.
    return found


@pytest.mark.parametrize("end_signal", [signal.SIGKILL, signal.SIGINT])
def test_plugins_end_after_pulumi_is_killed_or_interrupted(new_stack: NewStack, end_signal: signal.Signals) -> None:
    stack = new_stack("""
k8s.batch.v1.Job("job", metadata=meta("job"), opts=on_cluster, spec={
    "template": {"spec": {"restart_policy": "Never", "containers": [{"name": "c", "image": "i"}]}}})
""")
    command = stack.start("up", "--yes", "--skip-preview")
    deadline = time.monotonic() + 60
    while not stack.batch().list_namespaced_job(stack.namespace).items:
        assert command.poll() is None, command.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.2)
    running = "\n".join(processes_of(stack))
    assert "pulumi-resource-kubernetes" in running
    assert "execute.py" in running
    command.send_signal(end_signal)
    output, _ = command.communicate(timeout=60)
    deadline = time.monotonic() + 60
    while (left := processes_of(stack)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert left == []
    if end_signal == signal.SIGINT:
        assert "cancelled" in output
        assert stack.state()["job"]["id"] == f"{stack.namespace}/job"
