"""PID 1 in the namespaces of a local cluster: sets up the network, and runs the control plane and the nodes."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from infra.local import components
from infra.local.leftovers import NODE_VARIABLE
from infra.local.node import attach_to_bridge, make_bridge
from infra.local.settings import ClusterSettings
from infra.local.supervisor import Program, keep_running, write_log

UNSHARE = ("unshare", "--fork", "--pid", "--mount", "--net", "--mount-proc", "--kill-child", "--propagation", "private")
"""Command that starts a program in separate namespaces.

If `unshare` or the program dies, everything inside the namespaces dies too.
"""


def write_configuration(settings: ClusterSettings) -> None:
    """Write the files that the control plane reads."""
    keys = settings.keys
    (keys / "authentication.json").write_text(json.dumps(components.authentication()), encoding="utf-8")
    (keys / "Corefile").write_text(components.corefile(keys), encoding="utf-8")


def control_plane(settings: ClusterSettings, binaries: Path, listener: int) -> list[Program]:
    """Return the programs of the control plane in start order."""
    keys, logs = settings.keys, settings.folder / "logs"

    def program(name: str, argv: list[str], *, wait: bool = True) -> Program:
        return Program(name=name, argv=argv, log=logs / f"{name}.log", api_authority=keys / "ca.crt" if wait else None)

    proxy = program("api-proxy", [sys.executable, "-m", "infra.local.api_proxy", str(listener)], wait=False)
    proxy.pass_fds = (listener,)
    return [
        program("etcd", components.etcd(binaries, keys, settings.folder / "etcd"), wait=False),
        program("kube-apiserver", components.apiserver(binaries, keys), wait=False),
        proxy,
        program("kube-controller-manager", components.controller_manager(binaries, keys)),
        program("kube-scheduler", components.scheduler(binaries, keys)),
        program("coredns", components.coredns(binaries, keys)),
        program("repair", [sys.executable, "-m", "infra.local.repair", str(settings.folder)]),
    ]


def node(settings: ClusterSettings, binaries: Path, index: int) -> Program:
    """Return the program of node `index`. It runs in separate namespaces and joins the cluster's bridge."""
    return Program(
        name=settings.node_names[index],
        argv=[*UNSHARE, sys.executable, "-m", "infra.local.node", str(settings.folder), str(binaries), str(index)],
        log=settings.node_folder(index) / "node.log",
        environment={NODE_VARIABLE: str(index)},
        on_start=lambda pid: attach_to_bridge(pid, index),
    )


def main(folder: Path, binaries: Path, listener: int) -> None:
    """Run the cluster with the settings in `folder` until this process ends."""
    os.umask(0o022)
    settings = ClusterSettings.load(folder)
    write_log(f"cluster {settings.name} starts")
    make_bridge()
    write_configuration(settings)
    nodes = [node(settings, binaries, index) for index in range(settings.nodes)]
    keep_running([*control_plane(settings, binaries, listener), *nodes])


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
