"""Kubelet for the operators' pods: it gives each pod an address and starts its real program."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from infra.local.api import ApiUnavailable, Client
from infra.local.control_plane import UNSHARE
from infra.local.node import attach_node
from infra.local.settings import API_PORT, CONTROL_PLANE_ADDRESS, ClusterSettings

NAMESPACE = "trainyard-operators"
"""Namespace of the operators, copied from `settings.types.OPERATORS_NAMESPACE`, which is slow to import."""
FIRST_INDEX = 100
"""Index of the first pod on the cluster's bridge, far above the indices of nodes."""
POLL_SECONDS = 0.3


class Kubelet:
    """Kubelet that runs a process for each scheduled pod of the operators' namespace until the pod ends."""

    def __init__(self, settings: ClusterSettings) -> None:
        self._settings = settings
        self._api = cluster_client(settings)
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._next = FIRST_INDEX

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
        index, self._next = self._next, self._next + 1
        folder = self._settings.folder / "pods" / pod["metadata"]["name"]
        folder.mkdir(parents=True)
        (folder / "pod.json").write_text(json.dumps({"pod": pod, "index": index}), encoding="utf-8")
        with (self._settings.folder / "logs" / f"{pod['metadata']['name']}.log").open("ab") as log:
            words = [
                *UNSHARE,
                sys.executable,
                "-m",
                "simulation.cluster.real_pod",
                str(self._settings.folder),
                str(folder),
            ]
            process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        attach_node(process.pid, index)
        return process

    def _end(self, uid: str) -> None:
        if process := self._running.pop(uid, None):
            process.send_signal(signal.SIGKILL)
            process.wait()


def cluster_client(settings: ClusterSettings) -> Client:
    """Return a client of the API server for a process inside the cluster's network."""
    return Client(settings, server=f"https://{CONTROL_PLANE_ADDRESS}:{API_PORT}")


def main(folder: Path) -> None:
    """Run until this process ends."""
    os.umask(0o077)
    kubelet = Kubelet(ClusterSettings.load(folder))
    while True:
        try:
            kubelet.reconcile()
        except ApiUnavailable as error:
            print(error, file=sys.stderr, flush=True)
        time.sleep(POLL_SECONDS)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
