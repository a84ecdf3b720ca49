"""Detection of a removed local cluster by the follower."""

from __future__ import annotations

from pathlib import Path

from commands.monitor.cluster import LocalCluster


def test_local_cluster_without_its_settings_file_is_removed(tmp_path: Path) -> None:
    settings = tmp_path / "settings.json"
    settings.write_text("{}", encoding="utf-8")
    cluster = LocalCluster.of_kubeconfig(str(tmp_path / "keys" / "admin.kubeconfig"))
    assert cluster is not None
    assert not cluster.is_removed()
    settings.unlink()
    assert cluster.is_removed()
    assert LocalCluster.of_kubeconfig(str(tmp_path / "keys" / "admin.kubeconfig")) is None
