"""Files, ports, locks and leftovers of local clusters. Each cluster belongs to one stack of one checkout."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

import commands.down
from commands.environment import PROJECT, stack_environment
from commands.monitor.cluster import is_removed
from infra.local import leftovers, lifecycle
from infra.local.certificates import make_keys
from infra.local.components import kubelet_config
from infra.local.key_files import has_keys, has_kubeconfigs, write_kubeconfigs
from infra.local.lifecycle import RUN_BYTES, check_machine
from infra.local.provider import Engine, LocalClusterProvider, engine_above, lost_cluster, missing_images
from infra.local.settings import ClusterSettings, label, stack_cluster
from infra.make_command import COMMAND_VARIABLE


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Use a folder of the test as the cache folder, which contains the folders of clusters."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def cluster(request: pytest.FixtureRequest) -> ClusterSettings:
    """Return a stopped cluster with keys, a port and an id. By default it has no nodes, because nodes need images."""
    settings = stack_cluster("/checkout", "mine", nodes=getattr(request, "param", 0))
    settings.folder.mkdir(parents=True)
    (settings.folder / "port").write_text("16500", encoding="ascii")
    (settings.folder / "uid").write_text("abc", encoding="ascii")
    settings.save()
    make_keys(settings)
    return settings


def test_stack_cluster_equal_names_have_separate_folders() -> None:
    found = [stack_cluster(owner, stack, name="same") for owner in ("/one", "/two") for stack in ("a", "b", "A")]
    assert len({each.folder for each in found}) == len({each.cgroup for each in found}) == len(found)
    assert len({each.lock_file for each in found}) == len(found)


def test_stack_cluster_with_changed_settings_keeps_its_folder() -> None:
    mine = stack_cluster("/checkout", "mine")
    assert stack_cluster("/checkout", "mine", name="other", nodes=4, port=20000).folder == mine.folder


@pytest.mark.parametrize(
    ("stack", "expected"),
    [("local", "local"), ("my_Stack.2", "my-stack-2"), ("2024", "stack-2024"), ("_", "stack"), ("a" * 50, "a" * 32)],
)
def test_label_of_a_stack_is_a_dns_label(stack: str, expected: str) -> None:
    assert label(stack) == expected


@pytest.fixture
def abandoned_cluster(tmp_path: Path) -> Iterator[ClusterSettings]:
    """Yield a cluster of a deleted checkout. One process of the cluster still runs."""
    checkout = tmp_path / "checkout"
    settings = stack_cluster(str(checkout), "mine", nodes=0)
    settings.folder.mkdir(parents=True)
    settings.save()
    process = subprocess.Popen(["sleep", "600"], env={**os.environ, leftovers.CLUSTER_VARIABLE: str(settings.folder)})
    while not leftovers.processes(settings.folder) and process.poll() is None:
        pass  # `Popen` returns just before the kernel shows the new program's environment.
    yield settings
    process.kill()
    process.wait()


def down_orphan(monkeypatch: pytest.MonkeyPatch, name: str) -> int:
    """Run `make down ORPHAN=name` and return its exit status."""
    monkeypatch.setenv("ORPHAN", name)
    return commands.down.main()


def test_down_orphan_ends_only_cluster_of_deleted_checkout(
    abandoned_cluster: ClusterSettings,
    cluster: ClusterSettings,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    living = replace(cluster, owner=str(tmp_path))
    living.folder.mkdir()
    living.save()
    # The checkout of this cluster does not exist either, so `report_abandoned` would print this cluster, too.
    shutil.rmtree(cluster.folder)
    commands.down.report_abandoned()
    output = capsys.readouterr().out
    assert f"`make down ORPHAN={abandoned_cluster.folder.name}`" in output
    assert abandoned_cluster.owner in output
    assert living.folder.name not in output
    assert down_orphan(monkeypatch, abandoned_cluster.folder.name) == 0
    assert lifecycle.find_leftovers(abandoned_cluster) == []
    assert living.folder.exists()
    commands.down.report_abandoned()
    assert "ORPHAN" not in capsys.readouterr().out


def test_down_orphan_of_existing_checkout_is_rejected(
    abandoned_cluster: ClusterSettings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path(abandoned_cluster.owner).mkdir()
    assert down_orphan(monkeypatch, abandoned_cluster.folder.name) == 1
    error = capsys.readouterr().err
    assert abandoned_cluster.owner in error
    assert "`make down STACK=mine`" in error
    assert leftovers.processes(abandoned_cluster.folder)


def test_down_orphan_unknown_name_lists_known_names(
    abandoned_cluster: ClusterSettings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert down_orphan(monkeypatch, "other") == 1
    assert abandoned_cluster.folder.name in capsys.readouterr().err


def test_start_without_port_keeps_last_port_unless_in_use(cluster: ClusterSettings) -> None:
    with lifecycle._listen(cluster) as listener:
        assert listener.getsockname()[1] == 16500
        with lifecycle._listen(cluster) as another:
            assert another.getsockname()[1] in set(lifecycle.PORTS) - {16500}


def test_kubeconfig_is_rewritten_for_new_port(cluster: ClusterSettings) -> None:
    before = cluster.keys.joinpath("admin.crt").read_bytes()
    (cluster.folder / "port").write_text("16501", encoding="ascii")
    assert not has_kubeconfigs(cluster)
    write_kubeconfigs(cluster)
    assert "https://127.0.0.1:16501" in cluster.kubeconfig.read_text(encoding="utf-8")
    assert cluster.keys.joinpath("admin.crt").read_bytes() == before


@pytest.mark.parametrize("cluster", [1], indirect=True)
@pytest.mark.parametrize("name", ["admin.kubeconfig", "kubelet-0.kubeconfig"])
def test_deleted_kubeconfig_is_rebuilt_from_keys(cluster: ClusterSettings, name: str) -> None:
    path = cluster.keys / name
    before = path.read_bytes()
    path.unlink()
    assert has_keys(cluster)
    assert not has_kubeconfigs(cluster)
    write_kubeconfigs(cluster)
    assert path.read_bytes() == before
    assert path.stat().st_mode & 0o777 == 0o600


def test_deleted_key_is_recreated_and_data_is_kept(cluster: ClusterSettings) -> None:
    needed = {path.name for path in cluster.keys.iterdir() if path.suffix in (".crt", ".key", ".pub")}
    for name in sorted(needed - {"ca.key", "etcd-ca.key"}):
        (cluster.keys / name).unlink()
        assert not has_keys(cluster), name
        lifecycle._make_folders(cluster, 16500)
        assert has_keys(cluster), name
    assert lifecycle.identity(cluster) == "abc", "the data must be kept"


def test_start_with_damaged_settings_file_keeps_data(cluster: ClusterSettings) -> None:
    (cluster.folder / "settings.json").write_text('{"name":', encoding="utf-8")
    (cluster.bucket / "checkpoints").mkdir(parents=True)
    lifecycle._make_folders(cluster, 16500)
    assert (cluster.bucket / "checkpoints").is_dir()
    assert ClusterSettings.load(cluster.folder) == cluster


def test_start_without_identity_makes_new_cluster(cluster: ClusterSettings) -> None:
    (cluster.folder / "uid").unlink()
    (cluster.folder / "etcd").mkdir()
    lifecycle._make_folders(cluster, 16500)
    assert not (cluster.folder / "etcd").exists()
    assert lifecycle.identity(cluster) not in (None, "abc")


def test_interrupted_stop_removes_identity_and_down_orphan_completes_the_stop(
    cluster: ClusterSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.bucket.mkdir()

    def interrupt(_folder: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("shutil.rmtree", interrupt)
        with pytest.raises(KeyboardInterrupt):
            lifecycle.stop(cluster)
    assert lifecycle.identity(cluster) is None
    assert is_removed(str(cluster.kubeconfig))
    assert down_orphan(monkeypatch, cluster.folder.name) == 0
    assert lifecycle.find_leftovers(cluster) == []


def test_stop_removes_folder_and_lock_of_its_stack_only(cluster: ClusterSettings) -> None:
    other = stack_cluster("/checkout", "other")
    other.folder.mkdir(parents=True)
    found = stack_cluster("/checkout", "mine", name="renamed", port=20000)
    assert lifecycle.find_leftovers(found) == [f"folder {cluster.folder}"]
    assert lifecycle.stop(found)
    assert lifecycle.find_leftovers(cluster) == []
    assert not cluster.lock_file.exists()
    assert other.folder.exists()
    assert not lifecycle.stop(found)


def test_stop_without_folder_ends_processes() -> None:
    mine = stack_cluster("/checkout", "mine")
    environment = {**os.environ, leftovers.CLUSTER_VARIABLE: str(mine.folder)}
    process = subprocess.Popen(["sleep", "600"], env=environment)
    try:
        while not leftovers.processes(mine.folder):
            assert process.poll() is None
        assert lifecycle.find_leftovers(mine) == [f"process {process.pid}"]
        waiter = threading.Thread(target=process.wait)
        waiter.start()
        assert lifecycle.stop(mine)
        waiter.join(timeout=60)
        assert process.returncode == -signal.SIGKILL
    finally:
        process.kill()


def test_lock_is_exclusive_if_its_file_is_removed() -> None:
    mine = stack_cluster("/checkout", "mine")
    holders, counts = [], []

    def work() -> None:
        for _ in range(50):
            with lifecycle.locked(mine):
                holders.append(1)
                counts.append(len(holders))
                time.sleep(0.0005)
                holders.pop()
                mine.lock_file.unlink()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts == [1] * 200


def port_problem(port: int) -> str:
    """Return the problem of this port. The machine may have other problems, such as a full disk."""
    (found,) = [
        each for each in check_machine(stack_cluster("/checkout", "other", port=port)) if "platform.port" in each
    ]
    return found


def test_port_of_another_cluster_is_rejected_with_stack_and_checkout(cluster: ClusterSettings) -> None:
    program = f"""
import socket, sys, time
listener = socket.create_server(("127.0.0.1", 0))
open({str(cluster.folder / "port")!r}, "w").write(str(listener.getsockname()[1]))
print(listener.getsockname()[1], flush=True)
sys.stdin.read()
"""
    environment = {**os.environ, leftovers.CLUSTER_VARIABLE: str(cluster.folder)}
    words = [sys.executable, "-c", program]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, env=environment, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout
        port = int(process.stdout.readline())
        problem = port_problem(port)
        assert process.stdin
        process.stdin.close()
    assert f"platform.port = {port}" in problem
    assert "/checkout" in problem
    assert "`trainyard down --stack mine` there" in problem, "a folder without a Makefile needs the command `trainyard`"
    assert lifecycle._down_command(replace(cluster, owner=str(PROJECT))) == "`make down STACK=mine`"


def test_port_of_another_program_is_rejected_with_command_to_find_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        problem = port_problem(port)
    assert f"`ss -ltnp 'sport = :{port}'`" in problem


def test_stack_environment_has_kubeconfig_of_its_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("STACK", "second")
    assert "KUBECONFIG" not in stack_environment()
    mine = stack_cluster(str(PROJECT), "second")
    mine.folder.mkdir(parents=True)
    assert stack_environment()["KUBECONFIG"] == str(mine.kubeconfig)


def cluster_in_state(settings: ClusterSettings, uid: str) -> dict[str, object]:
    """Return the data of a cluster in Pulumi's state, where all numbers are floats."""
    port, nodes = float(settings.port), float(settings.nodes)
    inputs = {"owner": settings.owner, "stack": settings.stack, "name": settings.name, "nodes": nodes, "port": port}
    return {**inputs, "uid": uid}


def test_provider_with_lost_data_or_a_moved_checkout_names_the_remedy(cluster: ClusterSettings) -> None:
    assert lost_cluster(cluster, cluster_in_state(cluster, "abc")) == ""
    assert "`make up STACK=mine`" in lost_cluster(cluster, cluster_in_state(cluster, "another"))
    moved = replace(cluster, owner="/moved")
    assert "move this folder back there" in lost_cluster(moved, cluster_in_state(cluster, "abc"))
    assert "deletes that cluster with its checkpoints" in lost_cluster(moved, cluster_in_state(cluster, "abc"))
    original = replace(cluster, owner=str(Path.cwd()))
    assert "removes that cluster from this state" in lost_cluster(moved, cluster_in_state(original, "abc"))
    with pytest.raises(RuntimeError, match="is gone from"):
        LocalClusterProvider().diff("", cluster_in_state(cluster, "another"), cluster_in_state(cluster, "abc"))


def test_provider_with_a_cluster_in_another_cache_names_the_variable(
    cluster: ClusterSettings, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = {**cluster_in_state(cluster, "abc"), "bucket_path": str(cluster.bucket)}
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache / "new"))
    assert f"run the command with XDG_CACHE_HOME={cache};" in lost_cluster(cluster, state)
    provider = LocalClusterProvider()
    for change in (provider.read, provider.delete):
        with pytest.raises(RuntimeError, match=f"XDG_CACHE_HOME = {cache}/new: the cluster of stack mine is in"):
            change("", state)
    shutil.rmtree(cache / "trainyard")
    assert "is gone from" in lost_cluster(cluster, state)


def test_provider_delete_keeps_cluster_of_another_checkout(cache: Path) -> None:
    first = cache / "first"
    first.mkdir()
    theirs = stack_cluster(str(first), "mine")
    theirs.folder.mkdir(parents=True)
    LocalClusterProvider().delete("", cluster_in_state(theirs, "abc"))
    assert theirs.folder.exists()
    first.rmdir()
    LocalClusterProvider().delete("", cluster_in_state(theirs, "abc"))
    assert not theirs.folder.exists()


def test_missing_images_are_ordered_by_image_so_that_each_is_built_once() -> None:
    cluster = stack_cluster("/checkout", "mine", nodes=2)
    images = ["trainyard.local/layer:b", "docker.io/library/other:1", "trainyard.local/layer:a"]
    found = missing_images(cluster, images)
    assert found == [(0, images[0]), (1, images[0]), (0, images[2]), (1, images[2])]


def test_engine_check_without_pulumi_raises() -> None:
    with pytest.raises(RuntimeError, match="has ended; no further process was started"):
        Engine().check()


def test_engine_above_returns_parent_pulumi_until_killed(tmp_path: Path) -> None:
    engine = tmp_path / "pulumi"
    engine.symlink_to("/bin/bash")
    # The second command keeps bash from replacing itself with the first.
    process = subprocess.Popen([str(engine), "-c", "sh -c 'echo $$; sleep 600 & wait'; :"], stdout=subprocess.PIPE)
    with process.stdout or nullcontext() as output:
        assert output
        child = int(output.readline())
    try:
        assert engine_above(child) == process.pid
        process.kill()
        process.wait()
        assert engine_above(child) is None
    finally:
        for pid in (*children(child), child):
            os.kill(pid, signal.SIGKILL)


def children(pid: int) -> list[int]:
    """Return the children of a process."""
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()]


def test_start_with_a_failed_engine_check_launches_nothing(
    cluster: ClusterSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ended() -> None:
        raise RuntimeError("ended")

    launched: list[object] = []
    monkeypatch.setattr(lifecycle, "_launch", lambda *words: launched.append(words))
    with pytest.raises(RuntimeError, match="ended"):
        lifecycle.start(cluster, lambda _text: None, check=ended)
    assert launched == []


def test_changed_keys_names_the_settings_that_restart_a_running_cluster(
    cluster: ClusterSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed = replace(cluster, port=20000, nodes=3)
    assert lifecycle.changed_keys(changed) == "", "a stopped cluster has no changed keys"
    monkeypatch.setattr(leftovers, "processes", lambda _folder: [1])
    assert lifecycle.changed_keys(changed) == "platform.nodes, platform.port"
    assert lifecycle.changed_keys(cluster) == ""


def test_kubelet_evicts_pods_only_far_below_the_disk_space_that_a_start_needs() -> None:
    thresholds = kubelet_config(stack_cluster("/checkout", "mine"), 0)["evictionHard"]
    assert all(int(thresholds[f"{disk}.available"]) < RUN_BYTES / 2 for disk in ("nodefs", "imagefs"))


def test_down_orphan_of_an_unknown_cluster_shows_the_option_as_typed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(COMMAND_VARIABLE, "trainyard")
    assert commands.down.stop_abandoned("x") == 1
    assert capsys.readouterr().err.startswith("trainyard down: --orphan x: unknown cluster; ")
