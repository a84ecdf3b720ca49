"""Stages by which kwok simulates pods.

A pod runs at once, succeeds when the rehearsal allows it, and disappears when it is deleted.

Format: https://kwok.sigs.k8s.io/docs/user/stages-configuration/
"""

from __future__ import annotations

from typing import Any

from simulation.cluster.kubelet import NAMESPACE

MAY_END = "rehearsal.trainyard.dev/may-end"
"""Annotation of a pod that may succeed.

The rehearsal sets it once no pod of the job is pending. Otherwise a pod could free its node too early.
"""

_RUNNING = """\
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
_SUCCEEDED = """\
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
    name: str, conditions: list[tuple[str, str, list[str]]], then: dict[str, Any], kind: str = "Pod"
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
            "next": then,
        },
    }


_SIMULATED: tuple[str, str, list[str]] = (".metadata.namespace", "NotIn", [NAMESPACE])
_STAYS: tuple[str, str, list[str]] = (".metadata.deletionTimestamp", "DoesNotExist", [])
STAGES = (
    _stage("pod-runs", [_SIMULATED, _STAYS, (".status.phase", "In", ["Pending"])], {"statusTemplate": _RUNNING}),
    _stage(
        "pod-ends",
        [
            _SIMULATED,
            _STAYS,
            (".status.phase", "In", ["Running"]),
            (f'.metadata.annotations["{MAY_END}"]', "In", ["true"]),
        ],
        {"statusTemplate": _SUCCEEDED},
    ),
    _stage(
        "pod-goes",
        [_SIMULATED, (".metadata.deletionTimestamp", "Exists", [])],
        {"finalizers": {"empty": True}, "delete": True},
    ),
    # The rehearsal creates nodes with their status. Without a stage for nodes, kwok would update each node every 20 s.
    _stage("node-stays", [(".metadata.name", "DoesNotExist", [])], {}, kind="Node"),
)
"""Stages of pods, and one stage that never applies to a node."""
