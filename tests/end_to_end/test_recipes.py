"""Recipes as a user runs them, by what their pods print: `make up JOB=NAME` on the real local cluster."""

from __future__ import annotations

import re
import subprocess

import pytest

from tests.end_to_end.conftest import Checkout

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(2400)]

RANKS = {"resnet-fake": 4, "pytorch-gloo": 3, "digits-jobset": 2, "digits-train-job": 2}
"""Recipes and the number of ranks that must train in each."""
LEARNS = ("pytorch-gloo", "digits-jobset", "digits-train-job")
"""Recipes whose network must have learned the digits."""


@pytest.mark.parametrize("name", RANKS)
def test_every_rank_trains_to_the_end(checkout: Checkout, name: str) -> None:
    text = checkout.run("make", "up", f"JOB={name}", seconds=1200)
    ranks = RANKS[name]
    for rank in range(ranks):
        assert re.search(
            rf"^{name}/{rank} \| train .* loss=[\d.]+ .*global_rate=[\d.]+ .*rank={rank}/{ranks} ", text, re.M
        )
    ended = re.search(rf"^{name}: complete after .*test accuracy ([\d.]+) %", text, re.M)
    assert ended, text[-3000:]
    if name in LEARNS:
        assert float(ended[1]) > 90
    assert f"{name}-" in checkout.run("make", "status")


def test_an_elastic_job_goes_on_without_a_host_and_takes_it_in_again(checkout: Checkout) -> None:
    process = subprocess.Popen(
        ["make", "up", "JOB=elastic"],
        cwd=checkout.folder,
        env=checkout.environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    lines: list[str] = []
    killed = 0
    with process:
        for line in process.stdout:
            lines.append(line)
            if not killed and " train epoch=3 " in line:
                killed = len(lines)
                selector = "trainyard.dev/job=elastic,batch.kubernetes.io/job-completion-index=1"
                checkout.kubectl("delete", "pod", "--selector", selector, "--force", "--grace-period=0")
    after = "".join(lines[killed:])
    assert process.returncode == 0, after[-3000:]
    assert re.search(r"^elastic/\d \| resume ", after, re.M), "the rest went on from the checkpoint"
    assert re.search(r"^elastic/\d \| train .* rank=\d/3 .*host=elastic-1 ", after, re.M), "the host came back"
    assert "elastic: complete after" in after
