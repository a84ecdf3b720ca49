"""Examples as a user runs them: `make up JOB=NAME` on the local cluster. The tests check the output of the pods."""

from __future__ import annotations

import base64
import json
import os
import re
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from infra.naming import COMPONENT_LABEL, JOB_LABEL
from tests.end_to_end.conftest import Checkout, processes
from workloads.spec import example_jobs

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(2400)]

TRAIN_COMMAND = "exec python -m trainer.launch -m trainer digits --epochs=2\n"
"""Command that a test types into the shells of both hosts."""
USER_SCRIPT = """
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
mine = torch.tensor(dist.get_rank() + 1.0)
dist.all_reduce(mine)
print("{word}", f"sum={{mine.item()}}", flush=True)
dist.destroy_process_group()
"""
"""Script of a user. `word` differs between its versions."""
RANKS = {"resnet-fake": 4, "pytorch-gloo": 3, "digits-jobset": 2, "digits-train-job": 2}
"""Name of an example -> number of ranks that must train."""
SHORT_EXAMPLE = "pytorch-gloo"
"""Example that runs even without long tests. It needs an operator."""
GZIP_BITS_PER_BYTE = 2.82
"""Size of the test texts of the example `language` after gzip -9, in bits per byte of text."""
LEARNED_EXAMPLES = ("pytorch-gloo", "digits-jobset", "digits-train-job")
"""Examples that must end with a high accuracy on the digits."""


@pytest.mark.parametrize(
    "name", [SHORT_EXAMPLE, *(pytest.param(name, marks=pytest.mark.long) for name in RANKS if name != SHORT_EXAMPLE)]
)
def test_example_every_rank_trains_to_completion(checkout: Checkout, name: str) -> None:
    text = checkout.run("make", "up", f"JOB={name}", seconds=1200)
    ranks = RANKS[name]
    for rank in range(ranks):
        assert re.search(
            rf"^{name}/{rank} \| train .* loss=[\d.]+ .*global_rate=[\d.]+ .*rank={rank}/{ranks} ", text, re.M
        )
    ended = re.search(rf"^{name}: complete after .*test accuracy ([\d.]+) %", text, re.M)
    assert ended, text[-3000:]
    if name in LEARNED_EXAMPLES:
        assert float(ended[1]) > 90
    assert f"{name}-" in checkout.run("make", "status")


@pytest.mark.long
def test_example_language_needs_fewer_bits_than_gzip(checkout: Checkout) -> None:
    text = checkout.run("make", "up", "JOB=language", seconds=2300)
    ended = re.search(r"^language: complete after .*test ([\d.]+) bits per byte", text, re.M)
    assert ended, text[-3000:]
    assert float(ended[1]) < GZIP_BITS_PER_BYTE
    assert re.search(r'^language/0 \| sample .*text="The ', text, re.M), text[-3000:]


@pytest.mark.long
@pytest.mark.parametrize("name", ["deepspeed", "hf-trainer", "trl-sft"])
def test_example_of_other_trainer_learns_on_both_hosts(checkout: Checkout, name: str) -> None:
    text = checkout.run("make", "up", f"JOB={name}", seconds=1800)
    for rank in range(2):
        losses = [float(loss) for loss in re.findall(rf"^{name}/{rank} \| {{'loss': '([\d.]+)'", text, re.M)]
        assert losses[-1] < losses[0], text[-3000:]
    assert f"{name}: complete after" in text
    assert (checkout.cluster.bucket / "checkpoints" / name / "model.safetensors").is_file()


@pytest.mark.long
def test_example_nccl_check_measures_the_link_and_passes(checkout: Checkout) -> None:
    text = checkout.run("make", "up", "JOB=nccl-check", seconds=600)
    assert re.search(r"^nccl-check/\d \| link hosts=0-1 gigabits=[\d.]+$", text, re.M), text[-3000:]
    assert re.search(r"^nccl-check/\d \| links good ", text, re.M)


def test_user_script_runs_and_reruns_after_edit(checkout: Checkout) -> None:
    job = {"name": "mine", "script": "./mine.py", "hosts": 2, "resources": {"cpu": "200m", "memory": "1Gi"}}
    with checkout.changed_jobs(job):
        for word in ("first", "second"):
            (checkout.folder / "mine.py").write_text(USER_SCRIPT.format(word=word), encoding="utf-8")
            text = checkout.run("make", "up", seconds=600)
            for rank in range(2):
                assert re.search(rf"^mine/{rank} \| {word} sum=3\.0$", text, re.M), text[-3000:]


@pytest.mark.long
def test_compiled_model_trains_in_pods(checkout: Checkout) -> None:
    with checkout.restored_settings():
        checkout.change(name="compiled", flags={"compile": True, "epochs": 1})
        text = checkout.run("make", "up", seconds=1200)
    assert re.search(r"^compiled: complete after .*test accuracy 9", text, re.M), text[-3000:]
    assert re.search(r"^compiled/0 \| train epoch=1 step=1/", text, re.M), text[-3000:]


@pytest.mark.long
def test_example_interactive_hosts_train_by_hand(checkout: Checkout) -> None:
    checkout.run("make", "up", "JOB=interactive", seconds=600)
    checkout.kubectl("wait", "pod", "--selector", "trainyard.dev/job=interactive", "--for=condition=Ready")
    host, _ = checkout.objects("pods", "--selector", "trainyard.dev/job=interactive")
    listed = json.loads(checkout.kubectl("exec", host["metadata"]["name"], "--", "cat", "/opt/trainyard/sbom.cdx.json"))
    assert {"torch", "timm", "torchmetrics"} <= {each["name"] for each in listed["components"]}
    shells = [checkout.start("make", "exec", f"RANK={rank}", stdin=subprocess.PIPE) for rank in range(2)]
    for shell in shells:
        assert shell.stdin is not None
        shell.stdin.write(TRAIN_COMMAND)
        shell.stdin.close()
        shell.stdin = None
    printed = [shell.communicate(timeout=600)[0] for shell in shells]
    for rank, text in enumerate(printed):
        assert re.search(rf"^train .* rank={rank}/2 ", text, re.M), text[-3000:]
    assert "test_accuracy=" in "".join(printed)


@pytest.mark.long
def test_example_tf_horovod_trains_on_both_workers(checkout: Checkout) -> None:
    text = checkout.run("make", "up", "JOB=tf-horovod", seconds=1800)
    for rank in range(2):
        assert re.search(rf"^tf-horovod/{rank} \| train step=6 .* rank={rank}/2$", text, re.M), text[-3000:]
    each, total = re.findall(r"\| rate each=([\d.]+) total=([\d.]+) images/s ranks=2$", text, re.M)[-1]
    assert float(total) > float(each) > 0


@pytest.mark.long
def test_resumed_tf_horovod_starts_mpirun_once(checkout: Checkout) -> None:
    # The operator starts the launcher of a resumed job together with its workers.
    (job,) = example_jobs("tf-horovod")
    with checkout.changed_jobs({**job, "name": "resumed", "suspend": True}):
        checkout.run("make", "up", seconds=1800)
        text = checkout.run("make", "resume")
        pods = checkout.objects("pods", f"--selector={JOB_LABEL}=resumed,{COMPONENT_LABEL}=launcher")
    assert [pod["status"]["phase"] for pod in pods] == ["Succeeded"], text[-3000:]


def kill_sshd(pod: str) -> None:
    """Kill process 1 of a worker's container, as the kernel does if the container exceeds its memory."""
    for pid in processes():
        folder = Path("/proc", str(pid))
        with suppress(OSError):
            pids = (folder / "status").read_text(encoding="utf-8").partition("NSpid:")[2].partition("\n")[0]
            host = (folder / "root" / "etc" / "hostname").read_text(encoding="utf-8").strip()
            if pids.split()[-1:] == ["1"] and host == pod and b"sshd" in (folder / "cmdline").read_bytes():
                os.kill(pid, signal.SIGKILL)
                return
    raise AssertionError(f"no sshd runs in {pod}")


@pytest.mark.long
def test_tf_horovod_runs_again_after_its_worker_is_killed(checkout: Checkout) -> None:
    (job,) = example_jobs("tf-horovod")
    restarted = {**job, "name": "restarted", "args": [*job["args"], "--iterations=12"]}

    with checkout.changed_jobs(restarted):
        _, after = checkout.up_with_fault(at=" train step=4 ", fault=lambda: kill_sshd("restarted-worker-1"))
        pods = checkout.objects("pods", f"--selector={JOB_LABEL}=restarted,{COMPONENT_LABEL}=launcher")
    assert re.search(r"^restarted/1 \| train step=24 ", after, re.M), after[-3000:]
    assert sorted(pod["status"]["phase"] for pod in pods) == ["Failed", "Succeeded"]


@pytest.mark.long
@pytest.mark.parametrize("name", ["mxnet-horovod", "mxnet-ps"])
def test_example_mxnet_learns_on_both_workers(checkout: Checkout, name: str) -> None:
    text = checkout.run("make", "up", f"JOB={name}", seconds=1800)
    for rank in range(2):
        found = re.findall(rf"\| test epoch=\d global_step=\d+ accuracy=([\d.]+) rank={rank}/2$", text, re.M)
        accuracies = [float(each) for each in found]
        assert len(accuracies) == 2, text[-3000:]
        assert accuracies[-1] > max(accuracies[0], 80)


@pytest.mark.long
def test_example_wandb_writes_runs_and_keeps_key_secret(checkout: Checkout) -> None:
    key = "0123456789" * 4
    typed = f"pulumi config set --secret secrets:wandb {key}\n"
    environment = {**checkout.environment(), "SHELL": "/bin/sh"}
    subprocess.run(["make", "shell"], cwd=checkout.folder, env=environment, input=typed, text=True, check=True)
    text = checkout.run("make", "up", "JOB=tinyimagenet-wandb", seconds=1800)
    for rank in range(4):
        assert re.search(rf"^tinyimagenet-wandb/{rank} \| train .* rank={rank}/4 ", text, re.M), text[-3000:]
    assert "tinyimagenet-wandb: complete after" in text
    folder = checkout.cluster.bucket / "tinyimagenet-wandb" / "wandb"
    assert len(list(folder.rglob("offline-run-*/*.wandb"))) == 4
    assert len(list(folder.rglob("media/images/**/*.png"))) >= 4
    assert len(list(folder.rglob("media/table/**/*.json"))) >= 1
    (secret,) = checkout.objects("secrets", "--field-selector=metadata.name=tinyimagenet-wandb-secrets")
    assert base64.b64decode(secret["data"]["WANDB_API_KEY"]).decode() == key
    objects = json.dumps([checkout.objects(kind) for kind in ("jobs", "pods", "configmaps")])
    assert key not in objects + text + checkout.stack_file.read_text(encoding="utf-8")
    assert key.encode() not in b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


@pytest.mark.long
def test_example_s3_data_reads_each_sample_once_per_epoch(checkout: Checkout) -> None:
    text = checkout.run("make", "up", "JOB=s3-data", seconds=1800)
    # For so many hosts, `make up` prints only the lines of the first hosts.
    logs = {
        kind: checkout.kubectl("logs", f"--selector=trainyard.dev/job={kind}-data", "--tail=-1")
        for kind in ("s3", "gs")
    }
    for job in ("s3-data", "gs-data", "store"):
        assert f"{job}: complete after" in text, text[-3000:]
    for kind in ("s3", "gs"):
        for rank in range(2):
            assert re.search(rf"^train epoch=2 .* rank={rank}/2 ", logs[kind], re.M), logs[kind][-3000:]
        lines = rf"^store/0 \| served bucket={kind}-samples reads=(\d+) images=(\d+) times=(\S+) readers=(\S+)$"
        ((*counts, readers),) = re.findall(lines, text, re.M)
        assert counts == ["1200", "600", "2"], "each of the two epochs must read each image once"
        assert sorted(each.rpartition(":")[2] for each in readers.split(",")) == ["600", "600"], readers


@pytest.mark.long  # The image has six gigabytes.
def test_example_mnist_spmd_trains_on_eight_devices(checkout: Checkout) -> None:
    text = checkout.run("make", "up", "JOB=mnist-spmd", seconds=2000)
    for tensor, devices in (("images", "[8,1,1,1]"), ("0.weight", "[4,1,1,1,2]"), ("9.weight", "[4,2]")):
        line = rf"^sharding tensor={re.escape(tensor)} devices=\{{devices={re.escape(devices)}"
        assert re.search(line, text, re.M), text[-3000:]
    compiled = re.findall(r"^train .* compilations=(\d+)", text, re.M)
    assert len(set(compiled[1:])) == 1, compiled
    found = checkout.cluster.bucket.rglob("profiles/mnist-spmd/proc_0/**/*.xplane.pb")
    assert [path for path in found if path.stat().st_size]


@pytest.mark.long
def test_example_language_spmd_shards_the_weights(checkout: Checkout) -> None:
    text = checkout.run("make", "up", "JOB=language-spmd", seconds=2000)
    for tensor, devices in (("tokens", "[8,1]"), ("embedding.weight", "[1,4,2]"), ("norm.weight", "[4,2]")):
        line = rf"^sharding tensor={re.escape(tensor)} devices=\{{devices={re.escape(devices)}"
        assert re.search(line, text, re.M), text[-3000:]
    compiled = re.findall(r"^train .* compilations=(\d+)", text, re.M)
    assert len(set(compiled[1:])) == 1, compiled


@pytest.mark.long
def test_example_mnist_xla_ddp_trains_on_four_ranks_with_equal_test_losses(checkout: Checkout) -> None:
    text = checkout.run("make", "up", "JOB=mnist-xla-ddp", seconds=2000)
    losses = set()
    for rank in range(4):
        found = re.search(rf"^mnist-xla-ddp/{rank} \| test epoch=1 .* loss=(\S+) rank={rank}/4 ", text, re.M)
        assert found, text[-3000:]
        losses.add(found[1])
    assert len(losses) == 1
