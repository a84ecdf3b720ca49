"""Different stacks that use only documented settings: every accelerator, kind of job and most provisioning models."""

from __future__ import annotations

from typing import Any

Stack = dict[str, Any]
IMAGE = "example.com/team/train:1"
"""Image with the software for mpi-job, mx-job and ray-job. A rehearsal does not pull images."""
CAPACITY_BLOCK = "capacity-block:cr-0123456789abcdef0"


def pool(name: str, machine_type: str, nodes: int = 2, **keys: Any) -> dict[str, Any]:
    """Return a pool of a machine type."""
    return {"name": name, "machine_type": machine_type, "nodes": nodes, **keys}


def job(accelerator: str | None = None, gpus: int | None = None, hosts: int = 1, **keys: Any) -> dict[str, Any]:
    """Return a job whose hosts each request two CPUs per GPU, or four CPUs without a GPU."""
    found = {"name": "train", "recipe": "digits", "resources": {"cpu": 2 * (gpus or 2), "memory": "8Gi"}, **keys}
    if "script" in keys:
        del found["recipe"]
    found |= {"accelerator": accelerator} if accelerator else {}
    found |= {"accelerators_per_host": gpus} if gpus else {}
    return found | ({"hosts": hosts} if hosts > 1 else {})


def gke(zone: str, pools: list[dict[str, Any]], *jobs: dict[str, Any], **keys: Any) -> Stack:
    """Return a stack on GKE."""
    platform = {"kind": "gke", "project": "some-project", "zone": zone, "name": "varied", "pools": pools, **keys}
    return {"platform": platform, "jobs": list(jobs)}


def eks(region: str, pools: list[dict[str, Any]], *jobs: dict[str, Any], **keys: Any) -> Stack:
    """Return a stack on EKS."""
    platform = {"kind": "eks", "region": region, "name": "varied", "pools": pools, **keys}
    return {"platform": platform, "jobs": list(jobs)}


def slices(accelerator: str, **keys: Any) -> dict[str, Any]:
    """Return a pool of TPU slices."""
    return {"name": "tpu", "accelerator": accelerator, **keys}


CENTRAL = "us-central1-a"
STACKS: dict[str, Stack] = {
    "one spot L4": gke(CENTRAL, [pool("l4", "g2-standard-8", 1, capacity="spot")], job("nvidia-l4")),
    "RTX PRO 6000 of G4": gke(
        "us-central1-b", [pool("g4", "g4-standard-384", capacity="spot")], job("nvidia-rtx-pro-6000", 8, 2)
    ),
    "two pools of A100": gke(
        CENTRAL,
        [pool("large", "a2-ultragpu-8g"), pool("small", "a2-ultragpu-1g", 1, capacity="spot")],
        job("nvidia-a100-80gb", 8, 2, kind="pytorch-job"),
        job("nvidia-a100-80gb", 1, name="tune", kind="train-job"),
    ),
    "H100": gke(CENTRAL, [pool("h100", "a3-highgpu-8g")], job("nvidia-h100-80gb", 8, 2)),
    "reserved H100 of A3 Mega": gke(
        CENTRAL,
        [pool("mega", "a3-megagpu-8g", 4, capacity="reservation:mine")],
        job("nvidia-h100-mega-80gb", 8, 4, kind="mpi-job", image=IMAGE),
    ),
    "H200 by flex-start": gke(
        "us-central1-b",
        [pool("h200", "a3-ultragpu-8g", capacity="flex-start", max_run_hours=24)],
        job("nvidia-h200-141gb", 8, 2),
    ),
    "queued A100": gke(
        CENTRAL,
        [pool("a100", "a2-highgpu-8g", capacity="queued")],
        job("nvidia-tesla-a100", 8, 2, kind="pytorch-job", queue="research"),
    ),
    "a block of reserved B200": gke(
        "us-central1-b",
        [pool("b200", "a4-highgpu-8g", capacity="reservation:mine/reservationBlocks/block-1")],
        job("nvidia-b200", 8, 2),
    ),
    "a fallback order across zones": gke(
        CENTRAL,
        [
            pool(
                "a100",
                "a2-highgpu-4g",
                capacity=["reservation:mine", "flex-start", "spot"],
                zones=["us-central1-a", "us-central1-b"],
            )
        ],
        job("nvidia-tesla-a100", 4, 2),
    ),
    "a regional cluster that scales": gke(
        "us-central1-b",
        [pool("t4", "n1-standard-8", 4, accelerator="nvidia-tesla-t4", accelerators_per_node=1, min_nodes=0)],
        job("nvidia-tesla-t4", 1, 2, kind="pytorch-job"),
        job("nvidia-tesla-t4", 1, 2, name="second"),
        regional=True,
    ),
    "CPUs": gke(
        "europe-west4-a",
        [pool("cpu", "n2-standard-16", 3)],
        job(hosts=2, kind="mx-job", script="train.py", image=IMAGE),
        job(hosts=2, kind="mpi-job", name="second", image=IMAGE),
    ),
    "packages and data": gke(
        CENTRAL,
        [pool("cpu", "n2-standard-16", 2)],
        job(hosts=2, recipe="imagenet", requirements="requirements-docs.in", data="flowers"),
    ),
    "Ray on L4": gke(
        CENTRAL,
        [pool("l4", "g2-standard-24")],
        job("nvidia-l4", 2, 2, kind="ray-job", script="/opt/team/train.py", image=IMAGE),
    ),
    "v5e on four hosts": gke("us-west4-a", [slices("v5e", topology="4x4")], job("v5e", topology="4x4")),
    "v5e on one host": gke("us-west4-a", [slices("v5litepod-8")], job("v5e", topology="2x4")),
    "v5p": gke("us-east5-a", [slices("v5p-32", capacity="spot")], job("v5p-32", kind="jobset")),
    "a fallback order of v6e": gke(
        "us-east5-b", [slices("v6e-16", capacity=["reservation:mine", "spot"])], job("v6e-16")
    ),
    "v7x": gke("us-central1-c", [slices("v7x", topology="2x2x2")], job("v7x", topology="2x2x2")),
    "two slices of v4": gke("us-central2-b", [slices("v4-16", slices=2)], job("v4-16", slices=2, kind="jobset")),
    "P4d and P4de": eks(
        "us-west-2",
        [pool("p4d", "p4d.24xlarge"), pool("p4de", "p4de.24xlarge")],
        job("nvidia-tesla-a100", 8, 2),
        job("nvidia-a100-80gb", 8, 2, name="second"),
    ),
    "a Capacity Block of P5": eks(
        "us-west-2",
        [pool("p5", "p5.48xlarge", capacity=CAPACITY_BLOCK, zones=["us-west-2c"])],
        job("nvidia-h100-80gb", 8, 2, kind="mpi-job", image=IMAGE),
    ),
    "G4dn, G5 and G6": eks(
        "us-west-2",
        [pool("g4dn", "g4dn.12xlarge"), pool("g5", "g5.12xlarge", capacity="spot"), pool("g6", "g6.2xlarge", 1)],
        job("nvidia-tesla-t4", 4, 2, name="first"),
        job("nvidia-a10g", 4, 2),
        job("nvidia-l4", 1, name="second", kind="train-job", resources={"cpu": 4, "memory": "8Gi"}),
    ),
    "G6e": eks("us-west-2", [pool("g6e", "g6e.24xlarge")], job("nvidia-l40s", 4, 2)),
    "G7e": eks("us-east-2", [pool("g7e", "g7e.48xlarge")], job("nvidia-rtx-pro-6000", 8, 2)),
    "P3 and P3dn": eks(
        "us-west-2",
        [pool("p3", "p3.8xlarge", zones=["us-west-2b"]), pool("p3dn", "p3dn.24xlarge", 1)],
        job("nvidia-tesla-v100", 4, kind="jobset"),
        job("nvidia-tesla-v100", 4, kind="pytorch-job", name="second"),
        job("nvidia-tesla-v100", 8, name="third"),
    ),
    "P5e and P5en": eks(
        "us-east-2",
        [pool("p5e", "p5e.48xlarge"), pool("p5en", "p5en.48xlarge")],
        job("nvidia-h200-141gb", 8, 2),
        job("nvidia-h200-141gb", 8, 2, name="second"),
    ),
    "a Capacity Block of P6": eks(
        "us-west-2",
        [pool("p6", "p6-b200.48xlarge", capacity=CAPACITY_BLOCK, zones=["us-west-2a"])],
        job("nvidia-b200", 8, 2),
    ),
    "P6-B300": eks("us-west-2", [pool("p6", "p6-b300.48xlarge", zones=["us-west-2b"])], job("nvidia-b300", 8, 2)),
    "CPUs in two zones of AWS": eks(
        "us-west-2", [pool("cpu", "c7i.8xlarge")], job(hosts=2), zones=["us-west-2a", "us-west-2b"]
    ),
}
"""Feature of each stack -> its settings."""
