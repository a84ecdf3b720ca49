"""Simulated functions of the providers, such as `getAvailabilityZones`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from infra.local.settings import KUBERNETES_VERSION
from simulation.cloud.aws.account import ACCOUNT
from simulation.cloud.state import Properties

REGION = "us-east-1"


class NotSimulated(Exception):
    """The simulated clouds do not have this function."""


def _region(places: Properties, arguments: Properties) -> str:
    return str(arguments.get("region") or places.get("region") or REGION)


def _zones(arguments: Properties, places: Properties) -> Properties:
    region = _region(places, arguments)
    names = [f"{region}{letter}" for letter in "abc"]
    return {"id": region, "names": names, "zoneIds": [f"{name}-id" for name in names], "groupNames": [region]}


def _caller(_arguments: Properties, _places: Properties) -> Properties:
    return {
        "id": ACCOUNT,
        "accountId": ACCOUNT,
        "arn": f"arn:aws:iam::{ACCOUNT}:user/rehearsal",
        "userId": "AIDAREHEARSAL",
    }


def _partition(_arguments: Properties, _places: Properties) -> Properties:
    return {"id": "aws", "partition": "aws", "dnsSuffix": "amazonaws.com", "reverseDnsPrefix": "com.amazonaws"}


def _aws_region(arguments: Properties, places: Properties) -> Properties:
    region = _region(places, arguments)
    return {"id": region, "name": region, "region": region, "endpoint": f"ec2.{region}.amazonaws.com"}


def _policy(arguments: Properties, _places: Properties) -> Properties:
    return {"id": "policy", "json": json.dumps({"Version": "2012-10-17", "Statement": arguments.get("statements", [])})}


def _client(_arguments: Properties, places: Properties) -> Properties:
    return {"id": "client", "accessToken": "", **{key: places.get(key, "") for key in ("project", "region", "zone")}}


def _project(arguments: Properties, places: Properties) -> Properties:
    project = arguments.get("projectId") or places.get("project", "")
    return {"id": f"projects/{project}", "projectId": project, "number": "123456789012", "name": project}


def _engine_versions(arguments: Properties, _places: Properties) -> Properties:
    version = f"{KUBERNETES_VERSION}-gke.1000000"
    versions = {"latestMasterVersion": version, "latestNodeVersion": version, "defaultClusterVersion": version}
    channels = dict.fromkeys(("RAPID", "REGULAR", "STABLE", "EXTENDED"), version)
    return {
        "id": "versions",
        **arguments,
        **versions,
        "validMasterVersions": [version],
        "validNodeVersions": [version],
        "releaseChannelDefaultVersion": channels,
        "releaseChannelLatestVersion": channels,
    }


FUNCTIONS: Mapping[str, Callable[[Properties, Properties], Properties]] = {
    "aws:index/getAvailabilityZones:getAvailabilityZones": _zones,
    "aws:index/getCallerIdentity:getCallerIdentity": _caller,
    "aws:index/getPartition:getPartition": _partition,
    "aws:index/getRegion:getRegion": _aws_region,
    "aws:iam/getPolicyDocument:getPolicyDocument": _policy,
    "gcp:organizations/getClientConfig:getClientConfig": _client,
    "gcp:organizations/getProject:getProject": _project,
    "gcp:container/getEngineVersions:getEngineVersions": _engine_versions,
}
"""Token -> function of the arguments and of the provider's project, region and zone."""


def call(token: str, arguments: Properties, places: Properties) -> Properties:
    """Call a function and return its result. Raises NotSimulated."""
    if token not in FUNCTIONS:
        raise NotSimulated(
            f"the function {token} is not simulated; simulated functions are {', '.join(sorted(FUNCTIONS))}"
        )
    return FUNCTIONS[token](arguments, places)
