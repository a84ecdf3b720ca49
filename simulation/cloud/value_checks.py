"""Checks of single values, under their names in the Terraform providers' sources."""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

_LABEL = r"[a-z](?:[-a-z0-9]{%d,%d}[a-z0-9])"
_BUCKET_LABEL = re.compile(r"[a-z0-9_-]{1,63}")
_SERVICE_ACCOUNT = re.compile(r"projects/[^/]+/serviceAccounts/[^/]+")
_CALL = re.compile(r"(?P<name>\w+)(\((?P<arguments>.*)\))?")


def _pattern(value: str, pattern: str, what: str) -> str:
    return "" if re.fullmatch(pattern, value) else f"{value!r} must be {what}"


def _gce_name(value: str) -> str:
    what = "1 to 63 lower-case letters, digits and '-', first a letter, last not '-'"
    return _pattern(value, f"({_LABEL % (0, 61)}?)?", what)


def _rfc1035(value: str, low: int, high: int) -> str:
    what = f"{low} to {high} lower-case letters, digits and '-', first a letter, last not '-'"
    return _pattern(value, _LABEL % (low - 2, high - 2), what)


def _network(value: str, low: int = 0, high: int = 128) -> str:
    """Check a network. Host bits are allowed."""
    try:
        found = ipaddress.ip_network(value, strict=False)
    except ValueError:
        return f"{value!r} must be a network such as 10.0.0.0/20"
    if "/" not in value:
        return f"{value!r} must have a prefix length, such as {value}/32"
    return "" if low <= found.prefixlen <= high else f"{value!r} must be a /{low} to a /{high}"


def _exact_network(value: str, low: int, high: int) -> str:
    if reason := _network(value, low, high):
        return reason
    whole = str(ipaddress.ip_network(value, strict=False))
    return "" if value == whole else f"{value!r} has host bits; write {whole}"


def _moment(value: str) -> str:
    try:
        found = datetime.fromisoformat(value)
    except ValueError:
        found = None
    valid = found is not None and found.tzinfo is not None and "T" in value
    return "" if valid else f"{value!r} must be an RFC 3339 time such as 2026-01-01T03:00:00Z"


def _member(value: str) -> str:
    if value.startswith("deleted"):
        return f"{value!r} is a deleted principal"
    named = ":" in value.strip(":") or re.search(
        "projectOwners|projectReaders|projectWriters|all(Authenticated)?Users", value
    )
    return "" if named else f"{value!r} must be like user:, serviceAccount: or allUsers"


def _labels(value: Mapping[str, Any]) -> str:
    bad = [key for key in value if not _BUCKET_LABEL.fullmatch(key)]
    return f"keys {bad} must be 1 to 63 lower-case letters, digits, '_' and '-'" if bad else ""


def _account_link(value: str) -> str:
    matches = _SERVICE_ACCOUNT.fullmatch(value)
    return "" if matches else f"{value!r} must be projects/PROJECT/serviceAccounts/EMAIL"


def _arn(value: str) -> str:
    """Check an ARN of six parts. An empty string is valid."""
    what = "an ARN such as arn:aws:iam::123456789012:role/NAME"
    return _pattern(value, r"(arn:aws[a-z-]*:[^:]+:[^:]*:[^:]*:.+)?", what)


def _not_empty(value: Any) -> str:
    return "" if value else f"{value!r} must not be empty or zero"


def _json(value: str) -> str:
    try:
        json.loads(value)
    except ValueError:
        return "must be JSON"
    return ""


def _service_range(value: str) -> str:
    found = ipaddress.ip_network(value, strict=False)
    blocks = [ipaddress.ip_network(each) for each in ("10.0.0.0/8", "100.64.0.0/10", "172.16.0.0/12", "192.168.0.0/16")]
    inside = any(found.network_address in each for each in blocks)
    return "" if inside else f"{value!r} must be in 10/8, 100.64/10, 172.16/12 or 192.168/16"


def _ipv4_network(value: str) -> str:
    return _exact_network(value, 0, 32)


def _any_network(value: str) -> str:
    return _exact_network(value, 0, 128)


def _template_id(value: str) -> str:
    return _pattern(value, r"lt-[0-9a-z]+", "the id of a launch template such as lt-0123456789abcdef0")


def _cluster_name(value: str) -> str:
    return _pattern(value, r"[0-9A-Za-z][0-9A-Za-z_-]{0,99}", "1 to 100 letters, digits, '_' and '-'")


def _log_group(value: str, longest: int = 512) -> str:
    return _pattern(value, rf"[./\-_#A-Za-z0-9]{{1,{longest}}}", f"1 to {longest} letters, digits and ./-_#")


def _policy(value: str) -> str:
    return _json(value) if value.strip().startswith("{") else f"{value!r} must be a JSON object"


def _gke_name(value: str) -> str:
    what = "1 to 40 lower-case letters, digits and '-', first a letter, last not '-'"
    return _pattern(value, r"[a-z]([a-z0-9-]{0,38}[a-z0-9])?", what)


def _service(value: str) -> str:
    valid = "." in value and value != "bigquery-json.googleapis.com"
    return "" if valid else f"{value!r} must be a service such as container.googleapis.com"


CHECKS: Mapping[str, Callable[..., str]] = {
    "ValidateGCEName": _gce_name,
    "ValidateRFC1035Name": _rfc1035,
    "ValidateIpCidrRange": _network,
    "IsCIDRNetwork": _exact_network,
    "ValidateRFC3339Date": _moment,
    "validateIAMMember": _member,
    "labelKeyValidator": _labels,
    "ValidateRegexp(ServiceAccountLinkRegex)": _account_link,
    "validateProjectServiceService": _service,
    "gkeClusterName": _gke_name,
    "ValidARN": _arn,
    "NoZeroValues": _not_empty,
    "StringIsJSON": _json,
    "validateIPv4CIDRPrivateRange": _service_range,
    "ValidIPv4CIDRNetworkAddress": _ipv4_network,
    "ValidCIDRNetworkAddress": _any_network,
    "ValidLaunchTemplateID": _template_id,
    "validClusterName": _cluster_name,
    "validLogGroupName": _log_group,
    "ValidIAMPolicyJSON": _policy,
}
"""Name of a provider's check, or a whole call -> function that returns an error, empty for a valid value.

Names that begin with `gke` are Trainyard's, because the provider's functions are anonymous. The tables contain them by
hand.
"""


def failure(check: str, value: Any) -> str:
    """Return the error that a named check finds; empty for a valid value or an unknown check."""
    if check in CHECKS:
        return CHECKS[check](value)
    match = _CALL.fullmatch(check)
    name = match["name"] if match else ""
    if match is None or name not in CHECKS or match["arguments"] is None:
        return ""
    return CHECKS[name](value, *(int(each) for each in match["arguments"].split(",")))


def is_known(check: str) -> bool:
    """Return True if the named check is implemented here."""
    match = _CALL.fullmatch(check)
    return check in CHECKS or bool(match and match["name"] in CHECKS)
