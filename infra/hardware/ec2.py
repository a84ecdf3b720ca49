"""EC2 instance families, one row per family with its instance types; and AWS regions with their zones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from infra.hardware.machines import MachineType, find

SOURCE = "https://docs.aws.amazon.com/ec2/latest/instancetypes/ac.html"

_REGION_COUNTS = {
    **dict.fromkeys(("af-south", "ca-central", "ca-west", "eu-north", "il-central"), 1),
    **dict.fromkeys(("me-central", "me-south", "mx-central", "sa-east"), 1),
    **dict.fromkeys(("ap-east", "ap-south", "eu-central", "eu-south", "us-east", "us-west"), 2),
    **dict.fromkeys(("ap-northeast", "eu-west"), 3),
    "ap-southeast": 7,
}
_ZONE_LETTERS = {
    "ap-northeast-1": "acdb",
    "ap-northeast-2": "abcd",
    "ca-central-1": "abd",
    "us-east-1": "abcdef",
    "us-west-1": "acb",
    "us-west-2": "abcd",
}
"""Zone letters of regions whose letters are not a, b, c in this order. Zones that exist in every account are first."""

AWS_ZONES: Mapping[str, tuple[str, ...]] = {
    region: tuple(f"{region}{letter}" for letter in _ZONE_LETTERS.get(region, "abc"))
    for area, count in _REGION_COUNTS.items()
    for region in (f"{area}-{number}" for number in range(1, count + 1))
}
"""Zones of each public region, preferred zones first. Each account maps the letters to physical zones differently.

Government and China regions are not in the table. Sources (read 2026-11):
https://docs.aws.amazon.com/global-infrastructure/latest/regions/aws-regions.html,
https://docs.aws.amazon.com/global-infrastructure/latest/regions/aws-availability-zones.html
"""
AWS_ZONES_BY_ACCOUNT = ("us-west-1",)
"""Regions where each account has only some of the zones, from the sources of `AWS_ZONES`."""


@dataclass(frozen=True, kw_only=True)
class Ec2Machine(MachineType):
    """EC2 instance type."""

    efa_interfaces: int
    """Maximum number of Elastic Fabric Adapters. It is 0 for a type without EFA.

    Source: https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/efa-acc-inst-types.html
    """
    interfaces: int
    """Maximum number of network interfaces on the first card.

    Source: awslabs/amazon-eks-ami 81fec2e, nodeadm/internal/kubelet/instance-info.jsonl. The file lacks P3, whose
    source is aws/amazon-vpc-cni-k8s pkg/vpc/vpc_ip_resource_limit.go.
    """
    addresses: int
    """Maximum number of IPv4 addresses of each network interface, from the same sources."""
    missing_mib: int | None
    """Measured memory in MiB that a node of this type does not report. None without a measurement.

    Source: aws/karpenter-provider-aws 33450d8, pkg/providers/instancetype/zz_generated.memory_overhead.go.
    """


@dataclass(frozen=True, kw_only=True)
class Ec2Quota:
    """Quota of vCPUs: https://docs.aws.amazon.com/ec2/latest/instancetypes/ec2-instance-quotas.html"""

    code: str
    """Code in Service Quotas."""
    name: str
    """Name in Service Quotas."""


@dataclass(frozen=True, kw_only=True)
class Ec2Family:
    """Instance family: its instance types and their common properties. Each row sets every property."""

    name: str
    """Family, the `family` of its instance types."""
    machines: tuple[Ec2Machine, ...]
    """Instance types, smallest first."""
    quotas: tuple[Ec2Quota, Ec2Quota]
    """Quota of on-demand and reserved instances, then quota of spot instances."""
    regions: frozenset[str] | None
    """Regions with the family. None skips the check, if there are too many regions to list or no page lists them.

    Source: AWS's list of offers by region, in
    https://github.com/skypilot-org/skypilot-catalog/blob/00148f2af3672e2229b4f7bf8157d5a3f36e3c35/catalogs/v8/aws/vms.csv
    """
    capacity_blocks: bool
    """True if capacity blocks support the family.

    https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/ec2-capacity-blocks.html
    """
    first_efa_card: int
    """Index of the first network card with EFA. If it is not 0, card 0 carries only IP traffic."""
    missing_memory: tuple[int, float] | None
    """Memory that nodes do not report: a number of MiB, plus a number of MiB per GiB. The sum is at least the measured
    amount.

    None if each instance type has a measurement. The comment above `_NEWEST_CPU` has the sources.
    """


_STANDARD_QUOTAS = (
    Ec2Quota(code="L-1216C47A", name="Running On-Demand Standard instances"),
    Ec2Quota(code="L-34B43A08", name="All Standard Spot Instance Requests"),
)
_G_QUOTAS = (
    Ec2Quota(code="L-DB2E81BA", name="Running On-Demand G and VT instances"),
    Ec2Quota(code="L-3819A6DF", name="All G and VT Spot Instance Requests"),
)
_ON_DEMAND_P = Ec2Quota(code="L-417A185B", name="Running On-Demand P instances")
_P_QUOTAS = (_ON_DEMAND_P, Ec2Quota(code="L-7212CCBC", name="All P4, P3 and P2 Spot Instance Requests"))
_P5_QUOTAS = (_ON_DEMAND_P, Ec2Quota(code="L-C4BD4855", name="All P5 Spot Instance Requests"))

CpuSize = tuple[int, int, int]
"""vCPUs, network interfaces, addresses of each interface."""
_CPU_SIZES: Mapping[str, CpuSize] = {
    # https://docs.aws.amazon.com/ec2/latest/instancetypes/gp.html
    "large": (2, 3, 10),
    "xlarge": (4, 4, 15),
    "2xlarge": (8, 4, 15),
    "4xlarge": (16, 8, 30),
    "8xlarge": (32, 8, 30),
    "12xlarge": (48, 8, 30),
    "16xlarge": (64, 15, 50),
    "24xlarge": (96, 15, 50),
}
# Sources of `missing_memory`:
# - m6i, c6i, r6i: Karpenter's table.
# - r7i: 1212 MiB of 32 GiB, and 4311 MiB of 128 GiB (2i2c-org/infrastructure 63cd17e, node-capacity-info.json).
# - g6: 3626 MiB of 64 GiB, at most 5.3 % (pytorch/ci-infra pull requests 1082, 910).
# - p4de: 1146004920Ki allocatable with 21122Mi of huge pages, like r5.24xlarge.
# - p5: capacity 2097112716Ki (aws-do-eks).
# - g6e, g7e: no figures were found; they have the figures of g6.
# - p5en, p6-b200, p6-b300: no figures were found; they have the figures of the newest CPU families.
_NEWEST_CPU = (150, 34.5)
"""Value of `missing_memory` for the newest CPU families."""


def _regions(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _cpu_family(
    name: str,
    gib_per_vcpu: float,
    sizes: Mapping[str, CpuSize],
    *,
    missing_memory: tuple[int, float] | Mapping[str, int],
) -> Ec2Family:
    """Return a family without GPUs. `missing_memory` is size -> measured MiB, or the family's value."""
    measured = missing_memory if isinstance(missing_memory, Mapping) else {}
    return Ec2Family(
        name=name,
        machines=tuple(
            Ec2Machine(
                name=f"{name}.{size}",
                family=name,
                vcpus=vcpus,
                memory_gib=gib_per_vcpu * vcpus,
                efa_interfaces=0,
                interfaces=interfaces,
                addresses=addresses,
                missing_mib=measured.get(size),
            )
            for size, (vcpus, interfaces, addresses) in sizes.items()
        ),
        quotas=_STANDARD_QUOTAS,
        regions=None,
        capacity_blocks=False,
        first_efa_card=0,
        missing_memory=missing_memory if isinstance(missing_memory, tuple) else None,
    )


GpuSize = tuple[int, int, float, int, int, int, int | None]
"""GPUs, vCPUs, GiB, EFA interfaces, network interfaces, addresses of each interface, `missing_mib`."""


def _gpu_family(
    name: str,
    gpu: str,
    sizes: Mapping[str, GpuSize],
    *,
    quotas: tuple[Ec2Quota, Ec2Quota],
    regions: frozenset[str] | None,
    capacity_blocks: bool,
    first_efa_card: int,
    missing_memory: tuple[int, float] | None,
) -> Ec2Family:
    return Ec2Family(
        name=name,
        machines=tuple(
            Ec2Machine(
                name=f"{name}.{size}",
                family=name,
                vcpus=vcpus,
                memory_gib=memory,
                gpu=gpu,
                gpus=gpus,
                efa_interfaces=adapters,
                interfaces=interfaces,
                addresses=addresses,
                missing_mib=missing,
            )
            for size, (gpus, vcpus, memory, adapters, interfaces, addresses, missing) in sizes.items()
        ),
        quotas=quotas,
        regions=regions,
        capacity_blocks=capacity_blocks,
        first_efa_card=first_efa_card,
        missing_memory=missing_memory,
    )


_FAMILIES = (
    _cpu_family(
        "m5",
        4,
        _CPU_SIZES,
        missing_memory={
            "large": 559,
            "xlarge": 868,
            "2xlarge": 1149,
            "4xlarge": 2718,
            "8xlarge": 5090,
            "12xlarge": 5540,
            "16xlarge": 7178,
            "24xlarge": 10573,
        },
    ),
    _cpu_family("m6i", 4, _CPU_SIZES, missing_memory=_NEWEST_CPU),
    _cpu_family("m7i", 4, _CPU_SIZES, missing_memory=_NEWEST_CPU),
    _cpu_family("c6i", 2, _CPU_SIZES, missing_memory=_NEWEST_CPU),
    _cpu_family("c7i", 2, _CPU_SIZES, missing_memory=_NEWEST_CPU),
    _cpu_family("r6i", 8, _CPU_SIZES, missing_memory=_NEWEST_CPU),
    _cpu_family("r7i", 8, _CPU_SIZES, missing_memory=_NEWEST_CPU),
    _gpu_family(
        "g4dn",
        "nvidia-tesla-t4",
        {
            "xlarge": (1, 4, 16, 0, 3, 10, 700),
            "2xlarge": (1, 8, 32, 0, 3, 10, 1149),
            "4xlarge": (1, 16, 64, 0, 3, 10, 2046),
            "8xlarge": (1, 32, 128, 1, 4, 15, 3746),
            "12xlarge": (4, 48, 192, 1, 8, 30, 5540),
            "16xlarge": (1, 64, 256, 1, 4, 15, 7178),
            "metal": (8, 96, 384, 1, 15, 50, 6652),
        },
        quotas=_G_QUOTAS,
        regions=None,
        capacity_blocks=False,
        first_efa_card=0,
        missing_memory=None,
    ),
    _gpu_family(
        "g5",
        "nvidia-a10g",
        {
            "xlarge": (1, 4, 16, 0, 4, 15, 590),
            "2xlarge": (1, 8, 32, 0, 4, 15, 1039),
            "4xlarge": (1, 16, 64, 0, 8, 30, 1936),
            "8xlarge": (1, 32, 128, 1, 8, 30, 3636),
            "12xlarge": (4, 48, 192, 1, 15, 50, 5430),
            "16xlarge": (1, 64, 256, 1, 8, 30, 7132),
            "24xlarge": (4, 96, 384, 1, 15, 50, 10529),
            "48xlarge": (8, 192, 768, 1, 7, 50, 20552),
        },
        quotas=_G_QUOTAS,
        regions=None,
        capacity_blocks=False,
        first_efa_card=0,
        missing_memory=None,
    ),
    _gpu_family(
        "g6",
        "nvidia-l4",
        {
            "xlarge": (1, 4, 16, 0, 4, 15, None),
            "2xlarge": (1, 8, 32, 0, 4, 15, None),
            "4xlarge": (1, 16, 64, 0, 8, 30, None),
            "8xlarge": (1, 32, 128, 1, 8, 30, None),
            "12xlarge": (4, 48, 192, 1, 8, 30, None),
            "16xlarge": (1, 64, 256, 1, 15, 50, None),
            "24xlarge": (4, 96, 384, 1, 15, 50, None),
            "48xlarge": (8, 192, 768, 1, 15, 50, None),
        },
        quotas=_G_QUOTAS,
        regions=None,
        capacity_blocks=False,
        first_efa_card=0,
        missing_memory=(310, 52.0),
    ),
    _gpu_family(
        "g6e",
        "nvidia-l40s",
        {
            "xlarge": (1, 4, 32, 0, 4, 15, None),
            "2xlarge": (1, 8, 64, 0, 4, 15, None),
            "4xlarge": (1, 16, 128, 0, 8, 30, None),
            "8xlarge": (1, 32, 256, 1, 8, 30, None),
            "12xlarge": (4, 48, 384, 1, 10, 30, None),
            "16xlarge": (1, 64, 512, 1, 15, 50, None),
            "24xlarge": (4, 96, 768, 2, 10, 50, None),
            "48xlarge": (8, 192, 1536, 4, 10, 50, None),
        },
        quotas=_G_QUOTAS,
        regions=_regions(
            "ap-northeast-1 ap-northeast-2 eu-central-1 eu-north-1 eu-south-2 us-east-1 us-east-2 us-west-2"
        ),
        capacity_blocks=False,
        first_efa_card=0,
        missing_memory=(310, 52.0),
    ),
    _gpu_family(
        "g7e",
        "nvidia-rtx-pro-6000",
        {
            "2xlarge": (1, 8, 64, 0, 4, 64, None),
            "4xlarge": (1, 16, 128, 0, 8, 64, None),
            "8xlarge": (1, 32, 256, 1, 8, 64, None),
            "12xlarge": (2, 48, 512, 1, 10, 64, None),
            "24xlarge": (4, 96, 1024, 2, 10, 64, None),
            "48xlarge": (8, 192, 2048, 4, 10, 64, None),
        },
        quotas=_G_QUOTAS,
        # The source for us-west-2 is dstackai/dstack pull request 3752.
        regions=_regions("us-east-1 us-east-2 us-west-2"),
        capacity_blocks=False,
        first_efa_card=0,
        missing_memory=(310, 52.0),
    ),
    _gpu_family(
        "p3",
        "nvidia-tesla-v100",
        {
            "2xlarge": (1, 8, 61, 0, 4, 15, 1198),
            "8xlarge": (4, 32, 244, 0, 8, 30, 4248),
            "16xlarge": (8, 64, 488, 0, 8, 30, 7961),
        },
        quotas=_P_QUOTAS,
        regions=None,
        capacity_blocks=False,
        first_efa_card=0,
        missing_memory=None,
    ),
    _gpu_family(
        "p3dn",
        "nvidia-tesla-v100",
        {"24xlarge": (8, 96, 768, 1, 15, 50, None)},
        quotas=_P_QUOTAS,
        regions=_regions("ap-northeast-1 eu-west-1 us-east-1 us-west-2"),
        capacity_blocks=False,
        first_efa_card=0,
        missing_memory=(150, 27.2),
    ),
    _gpu_family(
        "p4d",
        "nvidia-tesla-a100",
        {"24xlarge": (8, 96, 1152, 4, 15, 50, None)},
        quotas=_P_QUOTAS,
        regions=_regions(
            "ap-northeast-1 ap-northeast-2 ap-south-1 ap-southeast-2 ca-central-1 eu-central-1 eu-north-1 eu-west-1 "
            "eu-west-2 us-east-1 us-east-2 us-west-2"
        ),
        capacity_blocks=True,
        first_efa_card=0,
        missing_memory=(150, 27.2),
    ),
    _gpu_family(
        "p4de",
        "nvidia-a100-80gb",
        {"24xlarge": (8, 96, 1152, 4, 15, 50, None)},
        quotas=_P_QUOTAS,
        regions=_regions("ap-northeast-1 ap-southeast-1 eu-central-1 us-east-1 us-west-2"),
        capacity_blocks=True,
        first_efa_card=0,
        missing_memory=(150, 27.2),
    ),
    _gpu_family(
        "p5",
        "nvidia-h100-80gb",
        {"48xlarge": (8, 192, 2048, 32, 2, 50, None)},
        quotas=_P5_QUOTAS,
        regions=_regions(
            "ap-northeast-1 ap-northeast-2 ap-south-1 ap-southeast-2 ap-southeast-3 ca-central-1 eu-north-1 "
            "eu-west-2 us-east-1 us-east-2 us-west-1 us-west-2"
        ),
        capacity_blocks=True,
        first_efa_card=0,
        missing_memory=(150, 24.2),
    ),
    _gpu_family(
        "p5e",
        "nvidia-h200-141gb",
        {"48xlarge": (8, 192, 2048, 32, 2, 50, None)},
        quotas=_P5_QUOTAS,
        regions=_regions("ap-southeast-2 ap-southeast-3 eu-north-1 eu-west-2 us-east-2 us-west-2"),
        capacity_blocks=True,
        first_efa_card=0,
        missing_memory=(150, 24.2),
    ),
    _gpu_family(
        "p5en",
        "nvidia-h200-141gb",
        {"48xlarge": (8, 192, 2048, 16, 4, 50, None)},
        quotas=_P5_QUOTAS,
        regions=_regions(
            "ap-northeast-1 ap-northeast-2 ap-south-1 ap-southeast-3 eu-north-1 eu-south-2 me-central-1 us-east-1 "
            "us-east-2 us-west-1 us-west-2"
        ),
        capacity_blocks=True,
        first_efa_card=0,
        missing_memory=_NEWEST_CPU,
    ),
    _gpu_family(
        "p6-b200",
        "nvidia-b200",
        {"48xlarge": (8, 192, 2048, 8, 4, 50, None)},
        quotas=_P_QUOTAS,
        regions=_regions("us-east-1 us-east-2 us-west-2"),
        capacity_blocks=True,
        first_efa_card=0,
        missing_memory=_NEWEST_CPU,
    ),
    _gpu_family(
        "p6-b300",
        "nvidia-b300",
        {"48xlarge": (8, 192, 4096, 16, 4, 50, None)},
        # No page names a spot quota of P6.
        quotas=_P_QUOTAS,
        # The source for us-east-1 is Karpenter's price list v1.15.1.
        regions=_regions("us-east-1 us-west-2"),
        capacity_blocks=True,
        # https://github.com/aws/aws-parallelcluster/issues/7143
        first_efa_card=1,
        missing_memory=_NEWEST_CPU,
    ),
)

EC2_FAMILIES: Mapping[str, Ec2Family] = {family.name: family for family in _FAMILIES}
"""Instance families by name."""
EC2_MACHINES: Mapping[str, Ec2Machine] = {
    machine.name: machine for family in EC2_FAMILIES.values() for machine in family.machines
}
"""EC2 instance types by name."""


def ec2_machine(name: str) -> Ec2Machine:
    """Return the instance type of that name. Raises HardwareError if it is not in the table."""
    find(name, EC2_MACHINES, SOURCE)
    return EC2_MACHINES[name]
