"""Remaining quota of a cloud account, queried with the user's `gcloud` or `aws`. Not yet tested."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from infra.aws.config import EksConfig
from infra.config import PlatformConfig
from infra.gcp.config import GkeConfig
from infra.quota import quota_needed

Ask = Callable[..., Any]
"""Function that runs a command and returns its JSON."""


def asked(*words: str) -> Any:
    """Return the JSON that a command prints.

    Raises CalledProcessError, and FileNotFoundError if it is not installed.
    """
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    return json.loads(done.stdout or "null")


def quota_left(platform: PlatformConfig, ask: Ask = asked) -> Mapping[tuple[str, str], int]:
    """Return quota name and location -> remaining quota, for the platform's quotas that the cloud reports.

    Compute Engine reports its regional and global quotas with their usage. EC2 reports limits, and usage by instances.
    https://cloud.google.com/compute/resource-usage, https://docs.aws.amazon.com/servicequotas/latest/userguide/
    """
    if isinstance(platform, GkeConfig):
        return _google(platform, ask)
    if isinstance(platform, EksConfig):
        return _amazon(platform, ask)
    return {}


def _google(platform: GkeConfig, ask: Ask) -> Mapping[tuple[str, str], int]:
    words = ("gcloud", "compute")
    place = (f"--project={platform.project}", "--format=json(quotas)")
    region = ask(*words, "regions", "describe", platform.region, *place)["quotas"]
    world = ask(*words, "project-info", "describe", *place)["quotas"]
    found = {(each["metric"], platform.region): int(each["limit"] - each["usage"]) for each in region}
    return found | {(each["metric"], "global"): int(each["limit"] - each["usage"]) for each in world}


def _amazon(platform: EksConfig, ask: Ask) -> Mapping[tuple[str, str], int]:
    place = (f"--region={platform.region}", "--output=json")
    names = {each.name.partition(" ")[0]: each.name for each in quota_needed(platform)}
    found = {}
    for code, name in names.items():
        quota = ask("aws", "service-quotas", "get-service-quota", "--service-code=ec2", f"--quota-code={code}", *place)
        metric = quota["Quota"].get("UsageMetric")
        used = _usage(metric, place, ask) if metric else 0
        found[(name, platform.region)] = int(quota["Quota"]["Value"]) - used
    return found


def _usage(metric: Mapping[str, Any], place: tuple[str, ...], ask: Ask) -> int:
    """Return the vCPUs in use, as CloudWatch counts them.

    https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/CloudWatch-Quotas-Visualize-Alarms.html
    """
    dimensions = [f"Name={name},Value={value}" for name, value in metric["MetricDimensions"].items()]
    words = ("cloudwatch", "get-metric-statistics", f"--namespace={metric['MetricNamespace']}")
    now = datetime.now(tz=UTC)
    times = (f"--start-time={(now - timedelta(hours=1)).isoformat()}", f"--end-time={now.isoformat()}")
    window = ("--period=300", "--statistics=Maximum", *times)
    answer = ask("aws", *words, f"--metric-name={metric['MetricName']}", *window, "--dimensions", *dimensions, *place)
    return int(max((each["Maximum"] for each in answer["Datapoints"]), default=0))
