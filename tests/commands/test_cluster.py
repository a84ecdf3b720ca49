"""Reports of ended programs, read from the real supervisor's log."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from commands.environment import PROJECT
from commands.monitor.cluster import LocalCluster
from infra.local.settings import ClusterSettings

SUPERVISOR = """
import sys
from pathlib import Path
from infra.local.supervisor import Program, keep_running
log = Path(sys.argv[1])
keep_running([
    Program(name="etcd", argv=["sh", "-c", "kill -9 $$"], log=log),
    Program(name="local-1", argv=["sh", "-c", "exit 1"], log=log),
])
"""


def test_ended_programs_and_nodes_are_reported_once(tmp_path: Path) -> None:
    (tmp_path / "settings.json").write_text('{"name": "local"}', encoding="utf-8")
    kubeconfig = tmp_path / "keys" / "admin.kubeconfig"
    assert ClusterSettings.load(tmp_path).name == "local"
    cluster = LocalCluster.of_kubeconfig(str(kubeconfig))
    assert cluster is not None
    found: dict[str, str] = {}
    with (tmp_path / "cluster.log").open("ab") as log:
        words = [sys.executable, "-c", SUPERVISOR, str(tmp_path / "program.log")]
        with subprocess.Popen(words, cwd=PROJECT, stderr=log) as process:
            deadline = time.monotonic() + 60
            while len(found) < 2 and time.monotonic() < deadline:
                found |= {end.name: str(end) for end in cluster.program_ends()}
                time.sleep(0.05)
            process.terminate()
    assert set(found) == {"etcd", "local-1"}
    assert found["etcd"].endswith(" (signal 9) and starts again")
    assert found["local-1"].startswith("node local-1 ended at ")
    cluster.program_ends()
    assert cluster.program_ends() == []


def test_a_cluster_whose_folder_is_gone_is_removed(tmp_path: Path) -> None:
    settings = tmp_path / "settings.json"
    settings.write_text("{}", encoding="utf-8")
    cluster = LocalCluster.of_kubeconfig(str(tmp_path / "keys" / "admin.kubeconfig"))
    assert cluster is not None
    assert not cluster.is_removed()
    settings.unlink()
    assert cluster.is_removed()
    assert LocalCluster.of_kubeconfig(str(tmp_path / "keys" / "admin.kubeconfig")) is None
