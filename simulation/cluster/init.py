"""Process 1 of a rehearsal's cluster: it runs the control plane, and the programs that simulate nodes.

Kwok simulates pods. A pod runs as soon as it has a node, succeeds when the rehearsal allows it, and disappears on
deletion.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from infra.local.control_plane import control_plane, write_configuration
from infra.local.key_files import kubeconfig
from infra.local.node import make_bridge
from infra.local.settings import API_PORT, CONTROL_PLANE_ADDRESS, ClusterSettings, cache_folder
from infra.local.supervisor import Program, keep_running
from simulation.cluster.kubelet import NAMESPACE

WEBHOOK_PORT = 9444
GKE_FILE = "is_gke"
"""Name of an empty file in the folder of a GKE cluster. Other clusters do not have it."""
GKE_ADMISSION_PLUGIN = "ExtendedResourceToleration"
"""Admission plugin of GKE. It makes pods that request an accelerator tolerate the accelerator's taint:
https://cloud.google.com/kubernetes-engine/docs/how-to/gpus
"""
ALLOW_PRIVILEGED = "--allow-privileged=true"
"""Flag of kube-apiserver that allows privileged pods, such as AWS's EFA device plugin.

GKE and EKS allow privileged pods, but by default kube-apiserver does not:
https://github.com/kubernetes/kubernetes/blob/v1.37.2/pkg/capabilities/capabilities.go
"""
MAY_END_ANNOTATION = "rehearsal.trainyard.dev/may-end"
"""Annotation of a pod that kwok lets succeed. The rehearsal sets it once no pod of the job is pending.

A pod that succeeded earlier would free its node before the job's other pods have nodes.
"""

_RUNNING_STATUS = """\
{{ $now := Now }}
phase: Running
startTime: {{ $now | Quote }}
hostIP: {{ NodeIPWith .spec.nodeName | Quote }}
podIP: {{ PodIPWith .spec.nodeName ( or .spec.hostNetwork false ) ( or .metadata.uid "" ) ( or .metadata.name "" ) \
( or .metadata.namespace "" ) | Quote }}
conditions:
{{ range $type := list "Initialized" "ContainersReady" "Ready" }}
- {type: {{ $type }}, status: "True", lastTransitionTime: {{ $now | Quote }}}
{{ end }}
containerStatuses:
{{ range .spec.containers }}
- name: {{ .name | Quote }}
  image: {{ .image | Quote }}
  imageID: ""
  ready: true
  started: true
  restartCount: 0
  state: {running: {startedAt: {{ $now | Quote }}}}
{{ end }}
{{ if .spec.initContainers }}
initContainerStatuses:
{{ range .spec.initContainers }}
- name: {{ .name | Quote }}
  image: {{ .image | Quote }}
  imageID: ""
  ready: true
  restartCount: 0
  {{ if eq (or .restartPolicy "") "Always" }}
  started: true
  state: {running: {startedAt: {{ $now | Quote }}}}
  {{ else }}
  state: {terminated: {exitCode: 0, reason: Completed, startedAt: {{ $now | Quote }}, finishedAt: {{ $now | Quote }}}}
  {{ end }}
{{ end }}
{{ end }}
"""
_SUCCEEDED_STATUS = """\
{{ $now := Now }}
phase: Succeeded
conditions:
{{ range $type := list "ContainersReady" "Ready" }}
- {type: {{ $type }}, status: "False", reason: PodCompleted, lastTransitionTime: {{ $now | Quote }}}
{{ end }}
containerStatuses:
{{ range .spec.containers }}
- name: {{ .name | Quote }}
  image: {{ .image | Quote }}
  imageID: ""
  ready: false
  started: false
  restartCount: 0
  state: {terminated: {exitCode: 0, reason: Completed, startedAt: {{ $now | Quote }}, finishedAt: {{ $now | Quote }}}}
{{ end }}
"""


def _stage(
    name: str, conditions: list[tuple[str, str, list[str]]], effect: dict[str, Any], kind: str = "Pod"
) -> dict[str, Any]:
    expressions = [
        {"key": key, "operator": operator, **({"values": values} if values else {})}
        for key, operator, values in conditions
    ]
    return {
        "apiVersion": "kwok.x-k8s.io/v1alpha1",
        "kind": "Stage",
        "metadata": {"name": name},
        "spec": {
            "resourceRef": {"apiGroup": "v1", "kind": kind},
            "selector": {"matchExpressions": expressions},
            "next": effect,
        },
    }


_SIMULATED_POD: tuple[str, str, list[str]] = (".metadata.namespace", "NotIn", [NAMESPACE])
_UNDELETED_POD: tuple[str, str, list[str]] = (".metadata.deletionTimestamp", "DoesNotExist", [])
STAGES = (
    _stage(
        "run-pod",
        [_SIMULATED_POD, _UNDELETED_POD, (".status.phase", "In", ["Pending"])],
        {"statusTemplate": _RUNNING_STATUS},
    ),
    _stage(
        "complete-pod",
        [
            _SIMULATED_POD,
            _UNDELETED_POD,
            (".status.phase", "In", ["Running"]),
            (f'.metadata.annotations["{MAY_END_ANNOTATION}"]', "In", ["true"]),
        ],
        {"statusTemplate": _SUCCEEDED_STATUS},
    ),
    _stage(
        "delete-pod",
        [_SIMULATED_POD, (".metadata.deletionTimestamp", "Exists", [])],
        {"finalizers": {"empty": True}, "delete": True},
    ),
    # A stage that never applies. Without a stage for nodes, kwok would update the status of each node every 20 s.
    _stage("keep-node", [(".metadata.name", "DoesNotExist", [])], {}, kind="Node"),
)
"""Configuration of kwok: https://kwok.sigs.k8s.io/docs/user/stages-configuration/"""


def kwok(settings: ClusterSettings) -> Program:
    """Return kwok, which simulates all pods with a node, except the operators' pods.

    Node leases are off. The lease of a killed kwok would block its successor until the lease expires. Kwok would also
    permanently ignore pods that a node gets before kwok has the lease of that node.
    """
    folder = settings.folder
    return _program(
        settings,
        "kwok",
        [
            str(cache_folder() / "bin" / "kwok" / "kwok"),
            f"--kubeconfig={folder}/inside.kubeconfig",
            f"--config={folder}/stages.yaml",
            "--manage-all-nodes=true",
            "--node-lease-duration-seconds=0",
            "--cidr=10.65.0.1/16",
        ],
    )


def kubelet(settings: ClusterSettings) -> Program:
    """Return the kubelet, which runs the operators' real programs."""
    return _program(settings, "kubelet", [sys.executable, "-m", "simulation.cluster.kubelet", str(settings.folder)])


def webhook(settings: ClusterSettings) -> Program:
    """Return the webhook that adds GKE's environment variables to TPU pods."""
    keys = settings.keys
    certificate = [str(keys / "apiserver.crt"), str(keys / "apiserver.key")]
    argv = [sys.executable, "-m", "simulation.cluster.tpu_webhook", CONTROL_PLANE_ADDRESS, str(WEBHOOK_PORT)]
    return _program(settings, "tpu-webhook", [*argv, *certificate], wait=False)


def _program(settings: ClusterSettings, name: str, argv: list[str], *, wait: bool = True) -> Program:
    return Program(
        name=name,
        argv=argv,
        log=settings.folder / "logs" / f"{name}.log",
        api_authority=settings.keys / "ca.crt" if wait else None,
    )


def main(folder: Path, binaries: Path, listener_fd: int) -> None:
    """Run the cluster with the settings in `folder` until this process ends. The API server's proxy accepts connections
    on `listener_fd`, an inherited socket."""
    os.umask(0o077)
    settings = ClusterSettings.load(folder)
    make_bridge()
    write_configuration(settings)
    server = f"https://{CONTROL_PLANE_ADDRESS}:{API_PORT}"
    inside = kubeconfig(settings.keys, "admin", settings.context, server)
    (folder / "inside.kubeconfig").write_text(inside, encoding="utf-8")
    (folder / "stages.yaml").write_text("\n---\n".join(map(json.dumps, STAGES)), encoding="utf-8")
    programs = control_plane(settings, binaries, listener_fd)
    is_gke = (folder / GKE_FILE).exists()
    for program in programs:
        if program.name == "kube-controller-manager":
            # No program renews the status of the simulated nodes, so the status must not expire.
            program.argv = [*program.argv, "--node-monitor-grace-period=24h"]
        if program.name == "kube-apiserver":
            program.argv = [*program.argv, ALLOW_PRIVILEGED]
            if is_gke:
                program.argv = [_with_gke_plugin(word) for word in program.argv]
    webhooks = [webhook(settings)] if is_gke else []
    keep_running([*programs, kwok(settings), kubelet(settings), *webhooks])


def _with_gke_plugin(word: str) -> str:
    return f"{word},{GKE_ADMISSION_PLUGIN}" if word.startswith("--enable-admission-plugins=") else word


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
