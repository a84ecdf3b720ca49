"""Changes to the image store, made by a short-lived containerd in separate namespaces."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

from infra.local.settings import CONTAINERD_CONFIG_VERSION, CONTAINERD_SOCKET, RUNTIME_PROGRAMS, built_programs

START_SECONDS = 30.0


def ctr(*words: str) -> None:
    """Run one `ctr` command in the containerd namespace that the kubelet's runtime reads."""
    subprocess.run([_program("ctr"), "--namespace", "k8s.io", *words], check=True)


def _program(name: str) -> str:
    return str(built_programs() / RUNTIME_PROGRAMS[name])


def main(store: str, orders: str) -> None:
    """Execute `orders` (JSON) on the containerd root `store`.

    If ordered, import an image from standard input. Then remove images and delete blobs.
    """
    subprocess.run(["mount", "-n", "-t", "tmpfs", "tmpfs", "/run"], check=True)
    config = Path("/run/containerd.toml")
    config.write_text(
        f'version = {CONTAINERD_CONFIG_VERSION}\nroot = "{store}"\noom_score = 0\n'
        'disabled_plugins = ["io.containerd.grpc.v1.cri"]\n',
        encoding="utf-8",
    )
    daemon = subprocess.Popen([_program("containerd"), "--config", str(config)], stdin=subprocess.DEVNULL)
    deadline = time.monotonic() + START_SECONDS
    while not Path(CONTAINERD_SOCKET).exists():
        if daemon.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError("containerd does not start")
        time.sleep(0.05)
    what = json.loads(orders)
    if what["import"]:
        ctr("images", "import", "-")
    for reference in what["remove"]:
        ctr("images", "remove", "--sync", reference)
    for digest in what["forget"]:
        ctr("content", "delete", digest)
    if what["forget"]:
        # containerd deletes blobs when it collects garbage. A synchronous deletion of a lease waits for that.
        ctr("leases", "create", "--id", "collect")
        ctr("leases", "delete", "--sync", "collect")
    daemon.terminate()
    daemon.wait(timeout=30)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
