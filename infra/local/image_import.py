"""Runs inside namespaces of its own: a short-lived containerd over the image store that imports one archive."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

SOCKET = "/run/containerd/containerd.sock"
START_SECONDS = 30.0


def ctr(*words: str) -> None:
    """Run one `ctr` command in the namespace that the kubelet's runtime reads."""
    subprocess.run(["ctr", "--address", SOCKET, "--namespace", "k8s.io", *words], check=True)


def main(store: str, archive: str, replaced: Sequence[str]) -> None:
    """Import `archive` into the containerd root `store` and remove the images `replaced`."""
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/run"], check=True)
    config = Path("/run/containerd.toml")
    config.write_text(
        f'version = 2\nroot = "{store}"\nstate = "/run/containerd"\noom_score = 0\n'
        'disabled_plugins = ["io.containerd.grpc.v1.cri", "io.containerd.internal.v1.opt",'
        ' "io.containerd.snapshotter.v1.devmapper"]\n'
        f'[grpc]\n  address = "{SOCKET}"\n',
        encoding="utf-8",
    )
    daemon = subprocess.Popen(["containerd", "--config", str(config)], stdout=sys.stderr)
    deadline = time.monotonic() + START_SECONDS
    while not Path(SOCKET).exists():
        if daemon.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError("containerd does not start")
        time.sleep(0.05)
    ctr("images", "import", "--all-platforms=false", archive)
    for reference in replaced:
        ctr("images", "remove", "--sync", reference)
    daemon.terminate()
    daemon.wait(timeout=30)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
