"""Kubelet that runs the real programs of the operators in the simulated cluster.

Instead of an image, a pod runs the program that set-up built from the operator's Go module. In the pod's mount
namespace, the program sees the machine's file system with new folders over /etc, /run and /tmp. Process 1 of the pod
mounts files, and starts and probes the program.
"""

from __future__ import annotations

import base64
import json
import os
import re
import signal
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from infra.local.api import JSON, STRATEGIC_MERGE_PATCH, ApiUnavailable, Client
from infra.local.control_plane import UNSHARE
from infra.local.node import attach_to_bridge, bind, join_cluster, mount
from infra.local.settings import API_PORT, CONTROL_PLANE_ADDRESS, ClusterSettings, cache_folder, node_address
from infra.operator_releases import RELEASES

NAMESPACE = "trainyard-operators"
"""Namespace of the operators. A copy of `settings.types.OPERATORS_NAMESPACE`, because that module is slow to import."""
FIRST_INDEX = 100
"""Index of the first pod on the cluster's bridge, far above the indices of nodes."""
POLL_SECONDS = 0.3
ACCOUNT_FOLDER = Path("/run/secrets/kubernetes.io/serviceaccount")
"""Folder of the service account's files. Programs read these files below /var/run, a link to /run."""


class Kubelet:
    """Kubelet that runs a process for each scheduled pod in the operators' namespace until the pod is deleted."""

    def __init__(self, settings: ClusterSettings) -> None:
        self._settings = settings
        self._api = cluster_client(settings)
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._next_index = FIRST_INDEX

    def reconcile(self) -> None:
        """Start and end processes to match the pods."""
        path = f"/api/v1/namespaces/{NAMESPACE}/pods"
        pods = {each["metadata"]["uid"]: each for each in self._api.request("GET", path)["items"]}
        for uid in [each for each in self._running if each not in pods]:
            self._end(uid)
        for uid, pod in pods.items():
            if "deletionTimestamp" in pod["metadata"]:
                self._end(uid)
                self._api.request("DELETE", f"{path}/{pod['metadata']['name']}?gracePeriodSeconds=0")
            elif pod["spec"].get("nodeName") and uid not in self._running:
                self._running[uid] = self._start(pod)

    def _start(self, pod: dict[str, Any]) -> subprocess.Popen[bytes]:
        index, self._next_index = self._next_index, self._next_index + 1
        folder = self._settings.folder / "pods" / pod["metadata"]["name"]
        folder.mkdir(parents=True)
        (folder / "pod.json").write_text(json.dumps({"pod": pod, "index": index}), encoding="utf-8")
        with (self._settings.folder / "logs" / f"{pod['metadata']['name']}.log").open("ab") as log:
            module = [sys.executable, "-m", "simulation.cluster.kubelet"]
            command = [*UNSHARE, *module, str(self._settings.folder), str(folder)]
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        attach_to_bridge(process.pid, index)
        return process

    def _end(self, uid: str) -> None:
        if process := self._running.pop(uid, None):
            process.send_signal(signal.SIGKILL)
            process.wait()


class OperatorPod:
    """Pod of an operator, with one container. This process is process 1 of the pod."""

    def __init__(self, settings: ClusterSettings, description: dict[str, Any]) -> None:
        self._api = cluster_client(settings)
        self._pod, self._index = description["pod"], int(description["index"])
        self._spec = self._pod["spec"]
        self._container = self._spec["containers"][0]
        self._ca_certificate = (settings.keys / "ca.crt").read_text(encoding="ascii")
        metadata = self._pod["metadata"]
        self._namespace_path = f"/api/v1/namespaces/{metadata['namespace']}"
        self._path = f"{self._namespace_path}/pods/{metadata['name']}"
        self._process: subprocess.Popen[bytes] | None = None
        self._restarts = 0

    def run(self) -> None:
        """Run the pod until this process ends."""
        program = Path("/run/program")
        self._mount_files(program)
        join_cluster(self._index, 0)
        self._write_service_account()
        ready_before = None
        while True:
            self._update_volumes()
            if self._process is None or self._process.poll() is not None:
                self._restarts += self._process is not None
                self._process = self._start(program)
            ready = self._probe("startupProbe") and self._probe("readinessProbe")
            if ready != ready_before:
                self._report_status(ready)
                ready_before = ready
            time.sleep(POLL_SECONDS)

    def _mount_files(self, program: Path) -> None:
        name = next(name for name, release in RELEASES.items() if release.image == self._container["image"])
        descriptor = os.open(cache_folder() / "bin" / name / name, os.O_PATH)
        for folder in ("/etc", "/run", "/tmp"):
            mount("-t", "tmpfs", "tmpfs", folder)
        program.touch()
        bind(descriptor, program)

    def _write_service_account(self) -> None:
        name = self._spec["serviceAccountName"]
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 86400}}
        answer = self._api.request("POST", f"{self._namespace_path}/serviceaccounts/{name}/token", body, JSON)
        ACCOUNT_FOLDER.mkdir(parents=True)
        (ACCOUNT_FOLDER / "token").write_text(answer["status"]["token"], encoding="ascii")
        (ACCOUNT_FOLDER / "ca.crt").write_text(self._ca_certificate, encoding="ascii")
        (ACCOUNT_FOLDER / "namespace").write_text(self._pod["metadata"]["namespace"], encoding="ascii")

    def _update_volumes(self) -> None:
        """Write each file of a Secret or ConfigMap volume whose content has changed."""
        volumes = {each["name"]: each for each in self._spec.get("volumes") or []}
        for mounted in self._container.get("volumeMounts") or []:
            found = self._volume_content(volumes.get(mounted["name"], {}))
            path = Path(mounted["mountPath"])
            sub_path = mounted.get("subPath")
            for name, content in found.items():
                if sub_path not in (None, name):
                    continue
                target = path if sub_path else path / name
                target.parent.mkdir(parents=True, exist_ok=True)
                if not target.exists() or target.read_bytes() != content:
                    draft = target.with_name(f".{target.name}.new")
                    draft.write_bytes(content)
                    draft.rename(target)

    def _volume_content(self, volume: dict[str, Any]) -> dict[str, bytes]:
        if "secret" in volume:
            found = self._api.request("GET", f"{self._namespace_path}/secrets/{volume['secret']['secretName']}")
            return {key: base64.b64decode(value) for key, value in (found.get("data") or {}).items()}
        if "configMap" in volume:
            found = self._api.request("GET", f"{self._namespace_path}/configmaps/{volume['configMap']['name']}")
            return {key: value.encode() for key, value in (found.get("data") or {}).items()}
        return {}

    def _start(self, program: Path) -> subprocess.Popen[bytes]:
        fields = {f"metadata.{key}": self._pod["metadata"][key] for key in ("namespace", "name")}
        variables = {
            each["name"]: each.get("value") or fields[each["valueFrom"]["fieldRef"]["fieldPath"]]
            for each in self._container.get("env") or []
        }
        command = [str(program), *(expand_references(each, variables) for each in self._container.get("args") or [])]
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            env={
                "PATH": os.environ["PATH"],
                "KUBERNETES_SERVICE_HOST": CONTROL_PLANE_ADDRESS,
                "KUBERNETES_SERVICE_PORT": str(API_PORT),
                "SSL_CERT_DIR": "/nonexistent",
                **variables,
            },
        )

    def _probe(self, name: str) -> bool:
        probe = (self._container.get(name) or {}).get("httpGet")
        if not probe:
            return True
        scheme = str(probe.get("scheme", "HTTP")).lower()
        url = f"{scheme}://{node_address(self._index)}:{probe['port']}{probe['path']}"
        # Like the real kubelet, do not verify the certificate.
        context = ssl._create_unverified_context() if scheme == "https" else None
        try:
            with urllib.request.urlopen(url, timeout=2, context=context) as reply:
                return bool(200 <= reply.status < 400)
        except (urllib.error.URLError, OSError):
            return False

    def _report_status(self, ready: bool) -> None:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        statuses = {"Initialized": True, "ContainersReady": ready, "Ready": ready}
        conditions = [
            {"type": kind, "status": str(status), "lastTransitionTime": now} for kind, status in statuses.items()
        ]
        address = node_address(self._index)
        status = {
            "phase": "Running",
            "podIP": address,
            "podIPs": [{"ip": address}],
            "hostIP": CONTROL_PLANE_ADDRESS,
            "startTime": now,
            "conditions": conditions,
            "containerStatuses": [
                {
                    "name": self._container["name"],
                    "image": self._container["image"],
                    "imageID": "",
                    "ready": ready,
                    "started": ready,
                    "restartCount": self._restarts,
                    "state": {"running": {"startedAt": now}},
                }
            ],
        }
        self._api.request("PATCH", f"{self._path}/status", {"status": status}, STRATEGIC_MERGE_PATCH)


def expand_references(text: str, variables: Mapping[str, str]) -> str:
    """Expand `$(NAME)` to the variable's value, and `$$` to `$`, as the kubelet does in arguments.

    https://kubernetes.io/docs/tasks/inject-data-application/define-interdependent-environment-variables/
    """
    found = {"$$": "$", **{f"$({name})": value for name, value in variables.items()}}
    return re.sub(r"\$\$|\$\([^)]*\)", lambda match: found.get(match[0], match[0]), text)


def cluster_client(settings: ClusterSettings) -> Client:
    """Return a client of the API server for a process inside the cluster's network."""
    return Client(settings, server=f"https://{CONTROL_PLANE_ADDRESS}:{API_PORT}")


def main(folder: Path, pod_folder: Path | None = None) -> None:
    """Run the kubelet of the cluster in `folder`, or process 1 of the pod in `pod_folder`. Does not return."""
    settings = ClusterSettings.load(folder)
    if pod_folder:
        OperatorPod(settings, json.loads((pod_folder / "pod.json").read_text(encoding="utf-8"))).run()
        return
    os.umask(0o077)
    kubelet = Kubelet(settings)
    while True:
        try:
            kubelet.reconcile()
        except ApiUnavailable as error:
            print(error, file=sys.stderr, flush=True)
        time.sleep(POLL_SECONDS)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
