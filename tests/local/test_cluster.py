"""Local cluster: its features, the faults that it survives, and its leftovers."""

from __future__ import annotations

import json
import os
import shutil
import signal
import ssl
import stat
import subprocess
import urllib.error
import urllib.request
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from infra.local import leftovers, lifecycle
from infra.local.api import ApiUnavailable, ready_nodes, request
from infra.local.leftovers import cgroup_folders
from infra.local.settings import KUBERNETES_VERSION, PAUSE_IMAGE, RUNTIME_PROGRAMS, ClusterSettings, built_programs
from infra.operator_releases import TOTAL_REQUEST
from setup.steps import CONTAINERD_VERSION, RUNC_VERSION
from tests.local.conftest import Kubectl, wait_for


def host_network() -> tuple[str, ...]:
    """Return the interfaces, routes and packet filter rules of the machine itself."""
    commands = (["ip", "-brief", "link"], ["ip", "route"], ["iptables-save"])
    found = []
    for words in commands:
        lines = subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()
        found += [line for line in lines if not line.startswith(("#", ":"))]
    return tuple(found)


def mounts() -> set[str]:
    """Return the machine's mounts, without the disks of concurrent tests in pytest's folders."""
    lines = Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()
    return {line for line in lines if "/pytest-of-" not in line}


def processes_called(settings: ClusterSettings, name: str) -> list[int]:
    """Return the cluster's processes whose program is `name`."""
    found = []
    for pid in leftovers.processes(settings.folder):
        try:
            program = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0].decode()
        except OSError:
            continue
        if Path(program).name == name:
            found.append(pid)
    return found


def lasting_processes(settings: ClusterSettings) -> list[int]:
    """Return the processes that run as long as the cluster, without short-lived children of containerd and kubelets."""
    programs = ("etcd", "kube-apiserver", "kube-scheduler", "kube-controller-manager", "containerd", "kubelet")
    found = [pid for program in programs for pid in processes_called(settings, program)]
    assert len(found) > len(programs), "each node must have a kubelet and a containerd"
    return found


def all_ready(settings: ClusterSettings) -> bool:
    """Return True if every node is ready according to the API server."""
    try:
        return ready_nodes(settings) >= set(settings.node_names)
    except ApiUnavailable:
        return False


def test_cluster_two_nodes_share_cpus_equally(cluster: ClusterSettings) -> None:
    nodes = request(cluster, "GET", "/api/v1/nodes")["items"]
    assert [node["metadata"]["name"] for node in nodes] == ["tests-0", "tests-1"]
    cpus = [node["status"]["allocatable"]["cpu"] for node in nodes]
    millicores = [int(cpu[:-1]) if cpu.endswith("m") else int(cpu) * 1000 for cpu in cpus]
    share = len(os.sched_getaffinity(0)) * 1000 // 2
    assert millicores == [share + TOTAL_REQUEST.millicores] * 2


def test_cluster_nodes_run_built_versions(cluster: ClusterSettings, kubectl: Kubectl) -> None:
    assert json.loads(kubectl("get", "--raw", "/version"))["gitVersion"] == f"v{KUBERNETES_VERSION}"
    for node in request(cluster, "GET", "/api/v1/nodes")["items"]:
        about = node["status"]["nodeInfo"]
        assert about["kubeletVersion"] == f"v{KUBERNETES_VERSION}"
        assert about["containerRuntimeVersion"] == f"containerd://{CONTAINERD_VERSION}"
    runtime = [str(built_programs() / RUNTIME_PROGRAMS["runc"]), "--version"]
    lines = subprocess.run(runtime, capture_output=True, text=True, check=True).stdout.splitlines()
    assert lines[0] == f"runc version {RUNC_VERSION}"
    assert any(line.startswith("libseccomp:") for line in lines)


@pytest.mark.usefixtures("cluster")
def test_cluster_image_pull_from_registry_fails_fast(kubectl: Kubectl) -> None:
    document = pod("pulled", "tests-0")
    document["spec"]["containers"][0]["image"] = "registry.example.com/absent:1"
    kubectl("apply", "--server-side", "-f", "-", document=document)
    path = "jsonpath={.status.containerStatuses[0].state.waiting.message}"
    wait_for("the pull fails", lambda: "connection refused" in kubectl("get", "pod", "pulled", "-o", path))
    kubectl("delete", "pod", "pulled", "--wait=true")


def test_cluster_start_keeps_network_and_mounts_of_host(settings: ClusterSettings) -> None:
    lifecycle.stop(settings)
    assert "/pytest-of-" not in str(settings.folder), "`mounts` must include those of the cluster"
    before = (host_network(), mounts())
    lifecycle.start(settings, lambda _text: None)
    assert (host_network(), mounts()) == before


def test_cluster_start_with_proxy_variables_is_ready(
    settings: ClusterSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    lifecycle.stop(settings)
    for name in ("http_proxy", "https_proxy", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    lifecycle.start(settings, lambda _text: None)
    assert lifecycle.is_running(settings)


def test_cluster_keys_are_private_and_anonymous_calls_rejected(cluster: ClusterSettings) -> None:
    for path in cluster.keys.iterdir():
        if path.suffix in (".key", ".kubeconfig"):
            assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    context = ssl.create_default_context(cafile=str(cluster.keys / "ca.crt"))
    with pytest.raises(urllib.error.HTTPError) as error:
        urllib.request.urlopen(f"https://127.0.0.1:{cluster.port}/api/v1/nodes", context=context, timeout=10)
    error.value.close()
    assert error.value.code in (401, 403)


def pod(name: str, node: str) -> dict[str, Any]:
    """Return a pod with the pause image on one node."""
    container = {"name": "pause", "image": PAUSE_IMAGE}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"nodeName": node, "containers": [container], "terminationGracePeriodSeconds": 0},
    }


@pytest.mark.parametrize("program", ["kube-apiserver", "etcd", "containerd", "kubelet", "kube-scheduler"])
def test_cluster_killed_program_restarts_and_pods_keep_running(
    cluster: ClusterSettings, kubectl: Kubectl, program: str
) -> None:
    name = f"before-{program}"
    kubectl("apply", "--server-side", "-f", "-", document=pod(name, "tests-0"))
    kubectl("wait", f"pod/{name}", "--for=condition=Ready", "--timeout=60s")
    started_at = partial(
        kubectl, "get", "pod", name, "-o", "jsonpath={.status.containerStatuses[0].state.running.startedAt}"
    )
    started = started_at()
    victims = processes_called(cluster, program)
    assert victims
    for pid in victims:
        os.kill(pid, signal.SIGKILL)
    wait_for(f"{program} runs again", lambda: bool(set(processes_called(cluster, program)) - set(victims)))
    wait_for("all nodes are ready", lambda: all_ready(cluster))
    # Until the kubelet reaches the new containerd, it may report the container as neither running nor ended.
    wait_for("the container runs", lambda: bool(started_at()))
    assert started_at() == started
    kubectl("delete", "pod", name, "--wait=true")


def test_cluster_killed_restarts_with_its_data(cluster: ClusterSettings, kubectl: Kubectl) -> None:
    kubectl("create", "configmap", "kept", "--from-literal=a=b")
    identity = lifecycle.identity(cluster)
    inits = [pid for pid in leftovers.processes(cluster.folder) if leftovers.is_namespace_init(pid)]
    os.kill(min(inits), signal.SIGKILL)
    wait_for("every process ends with process 1", lambda: not leftovers.processes(cluster.folder))
    assert not lifecycle.is_running(cluster)
    lifecycle.start(cluster, lambda _text: None)
    assert lifecycle.identity(cluster) == identity
    assert kubectl("get", "configmap", "kept", "-o", "jsonpath={.data.a}") == "b"


def test_cluster_interrupted_start_is_completed(cluster: ClusterSettings, kubectl: Kubectl) -> None:
    # An interrupted start may not have created this service yet.
    service = ("--namespace", "kube-system", "service", "kube-dns")
    kubectl("delete", *service)
    lifecycle.start(cluster, lambda _text: None)
    kubectl("get", *service)


def test_cluster_deleted_kubeconfig_is_rebuilt_while_running(cluster: ClusterSettings) -> None:
    before, processes = cluster.kubeconfig.read_bytes(), leftovers.node_process(cluster.folder, 0)
    cluster.kubeconfig.unlink()
    lifecycle.start(cluster, lambda _text: None)
    assert cluster.kubeconfig.read_bytes() == before
    assert leftovers.node_process(cluster.folder, 0) == processes


def test_cluster_deleted_key_restarts_with_its_data(cluster: ClusterSettings, kubectl: Kubectl) -> None:
    kubectl("create", "configmap", "key-test", "--from-literal=a=b")
    (cluster.keys / "apiserver.key").unlink()
    assert not lifecycle.is_running(cluster)
    lifecycle.start(cluster, lambda _text: None)
    assert kubectl("get", "configmap", "key-test", "-o", "jsonpath={.data.a}") == "b"


def test_cluster_deleted_folder_starts_new_cluster(cluster: ClusterSettings) -> None:
    identity = lifecycle.identity(cluster)
    shutil.rmtree(cluster.folder, ignore_errors=True)
    lifecycle.start(cluster, lambda _text: None)
    assert lifecycle.identity(cluster) != identity
    assert all_ready(cluster)


def test_cluster_equal_names_run_and_stop_separately(cluster: ClusterSettings) -> None:
    others = [
        replace(cluster, stack="second", nodes=1, port=0),
        replace(cluster, owner="another checkout", nodes=1, port=0),
    ]
    before = lasting_processes(cluster)
    try:
        for other in others:
            lifecycle.start(other, lambda _text: None)
        assert len({each.api_port for each in (cluster, *others)}) == 3
        assert all(all_ready(each) for each in (cluster, *others))
        assert lifecycle.stop(others[0])
        assert lifecycle.find_leftovers(others[0]) == []
        assert all_ready(cluster)
        assert all_ready(others[1])
        assert lasting_processes(cluster) == before
    finally:
        for other in others:
            lifecycle.stop(other)


def test_cluster_killed_node_restarts(cluster: ClusterSettings) -> None:
    lost = leftovers.node_process(cluster.folder, 1)
    assert lost is not None
    os.kill(lost, signal.SIGKILL)
    wait_for("the node has a new process 1", lambda: leftovers.node_process(cluster.folder, 1) not in (None, lost))
    wait_for("all nodes are ready", lambda: all_ready(cluster))


def test_cluster_restarted_node_reports_its_pods_failed(cluster: ClusterSettings, kubectl: Kubectl) -> None:
    document = pod("lost-container", "tests-1")
    document["spec"]["restartPolicy"] = "Never"
    kubectl("apply", "--server-side", "-f", "-", document=document)
    kubectl("wait", "pod/lost-container", "--for=condition=Ready", "--timeout=60s")
    process = leftovers.node_process(cluster.folder, 1)
    assert process is not None
    os.kill(process, signal.SIGKILL)
    phase = ("get", "pod", "lost-container", "-o", "jsonpath={.status.phase}")
    wait_for("the pod is failed", lambda: kubectl(*phase) == "Failed")
    kubectl("delete", "pod", "lost-container")


def test_cluster_unresponsive_node_is_repaired(cluster: ClusterSettings) -> None:
    silent = leftovers.node_process(cluster.folder, 1)
    assert silent is not None
    os.kill(silent, signal.SIGSTOP)
    for program in ("kubelet", "containerd"):
        for pid in processes_called(cluster, program):
            if leftovers.environment_value(pid, "TRAINYARD_NODE_INDEX") == "1":
                os.kill(pid, signal.SIGKILL)
    wait_for("a node is not ready", lambda: not all_ready(cluster))
    wait_for("the node has a new process 1", lambda: leftovers.node_process(cluster.folder, 1) not in (None, silent))
    wait_for("all nodes are ready", lambda: all_ready(cluster))
    node = "/api/v1/nodes/tests-1"
    wait_for("the node accepts pods again", lambda: "taints" not in request(cluster, "GET", node)["spec"])


def test_cluster_network_has_no_default_route_and_no_other_interface(cluster: ClusterSettings) -> None:
    inits = [pid for pid in leftovers.processes(cluster.folder) if leftovers.is_namespace_init(pid)]
    (control_plane,) = (pid for pid in inits if leftovers.environment_value(pid, "TRAINYARD_NODE_INDEX") is None)

    def ip(*words: str) -> list[dict[str, Any]]:
        command = ["nsenter", "--target", str(control_plane), "--net", "ip", "-json", *words]
        found: list[dict[str, Any]] = json.loads(
            subprocess.run(command, capture_output=True, text=True, check=True).stdout or "[]"
        )
        return found

    assert {each["ifname"] for each in ip("link", "show", "up")} == {"lo", "nodes", "node-0", "node-1"}
    assert ip("route", "show", "default") == []


def test_cluster_with_fewer_nodes_keeps_data_and_removes_nodes(cluster: ClusterSettings) -> None:
    identity = lifecycle.identity(cluster)
    one = replace(cluster, nodes=1)
    lifecycle.start(one, lambda _text: None)
    assert lifecycle.identity(one) == identity
    assert [node["metadata"]["name"] for node in request(one, "GET", "/api/v1/nodes")["items"]] == ["tests-0"]
    assert not one.node_folder(1).exists()


def test_cluster_stop_leaves_nothing(cluster: ClusterSettings, kubectl: Kubectl) -> None:
    kubectl("apply", "--server-side", "-f", "-", document=pod("left", "tests-1"))
    kubectl("wait", "pod/left", "--for=condition=Ready", "--timeout=60s")
    assert cgroup_folders(cluster.cgroup)
    assert lifecycle.stop(cluster) is True
    assert lifecycle.find_leftovers(cluster) == []
    assert list(Path("/sys/fs/cgroup").rglob(Path(cluster.cgroup).name)) == []
    assert lifecycle.stop(cluster) is False
