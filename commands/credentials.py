"""Check of this machine's credentials for a cloud, before anything is created. No Pulumi.

Not yet tested with a cloud account.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

TIMEOUT_SECONDS = 30
GOOGLE_VARIABLES = (
    "GOOGLE_APPLICATION_CREDENTIALS",
    "GOOGLE_CREDENTIALS",
    "GOOGLE_CLOUD_KEYFILE_JSON",
    "GCLOUD_KEYFILE_JSON",
    "GOOGLE_OAUTH_ACCESS_TOKEN",
)
"""https://www.pulumi.com/registry/packages/gcp/installation-configuration/"""
AWS_VARIABLES = (
    "AWS_ACCESS_KEY_ID",
    "AWS_PROFILE",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
)
"""https://docs.aws.amazon.com/sdkref/latest/guide/standardized-credentials.html"""
PRODUCT = Path("/sys/class/dmi/id/product_name")
VENDOR = Path("/sys/class/dmi/id/sys_vendor")


def missing_credentials(scheme: str, environment: Mapping[str, str] = os.environ) -> str:
    """Return why this machine cannot log in to the cloud of a bucket's scheme, and what to do; empty if it can."""
    return CHECKS[scheme](environment)


def _google(environment: Mapping[str, str]) -> str:
    """Check Google's application default credentials.

    https://cloud.google.com/docs/authentication/application-default-credentials
    """
    login = "run `gcloud auth application-default login`, or set GOOGLE_APPLICATION_CREDENTIALS to a key file"
    if file := environment.get("GOOGLE_APPLICATION_CREDENTIALS"):
        if not Path(file).is_file():
            return f"GOOGLE_APPLICATION_CREDENTIALS = {file}: no such file; {login}"
        return ""
    if any(environment.get(name) for name in GOOGLE_VARIABLES):
        return ""
    folder = environment.get("CLOUDSDK_CONFIG") or f"{environment.get('HOME', '')}/.config/gcloud"
    if not (Path(folder) / "application_default_credentials.json").is_file():
        # https://cloud.google.com/compute/docs/instances/detect-compute-engine
        return "" if "Google" in _read(PRODUCT) else f"this machine has no credentials for Google Cloud; {login}"
    problem = _failure("gcloud", "auth", "application-default", "print-access-token")
    return problem and f"Google Cloud does not accept the credentials ({problem}); {login}"


def _aws(environment: Mapping[str, str]) -> str:
    login = "run `aws sso login` or `aws configure`, or set AWS_PROFILE"
    files = [
        environment.get("AWS_SHARED_CREDENTIALS_FILE") or f"{environment.get('HOME', '')}/.aws/credentials",
        environment.get("AWS_CONFIG_FILE") or f"{environment.get('HOME', '')}/.aws/config",
    ]
    has_any = any(environment.get(name) for name in AWS_VARIABLES) or any(Path(file).is_file() for file in files)
    # https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/identify_ec2_instances.html
    if not has_any and "Amazon" not in _read(VENDOR):
        return f"this machine has no credentials for AWS; {login}"
    problem = _failure("aws", "sts", "get-caller-identity", "--output=json")
    return problem and f"AWS does not accept the credentials ({problem}); {login}"


CHECKS: Mapping[str, Callable[[Mapping[str, str]], str]] = {"gs": _google, "s3": _aws}
"""Scheme of a bucket's URL -> check of the credentials for that cloud."""


def _failure(*words: str) -> str:
    """Return the last line of a command's error; empty if it succeeds or is not installed."""
    if shutil.which(words[0]) is None:
        return ""
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=TIMEOUT_SECONDS)
    except subprocess.TimeoutExpired:
        return f"`{words[0]}` did not answer within {TIMEOUT_SECONDS} s"
    if done.returncode == 0:
        return ""
    lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    return lines[-1] if lines else f"`{' '.join(words)}` failed with {done.returncode}"


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
