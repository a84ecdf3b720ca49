"""Rules of service accounts, IAM members and roles, and enabled APIs."""

from __future__ import annotations

import re

from simulation.cloud.kind import Found, admission, rule
from simulation.cloud.state import CloudState, Properties

_ACCOUNT = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])")
_MEMBER = re.compile(
    r"(user|group):[^@\s]+@[^@\s]+\.[^@\s]+|serviceAccount:[^@\s\[\]]+@[^@\s\[\]]+|domain:\S+\.\S+"
    r"|serviceAccount:(?P<pool>[^\[\]\s]+\.svc\.id\.goog)\[[-a-z0-9]+/[-a-z0-9.]+\]|principal(Set)?://\S+"
    r"|(projectOwner|projectEditor|projectViewer):\S+|allUsers|allAuthenticatedUsers"
)
_OWN_ACCOUNT = re.compile(r"serviceAccount:(?P<email>[^@\s]+@(?P<project>[^@\s]+)\.iam\.gserviceaccount\.com)")
_CUSTOM_ROLE = re.compile(r"(projects|organizations)/[^/]+/roles/[A-Za-z0-9_.]{3,64}")
_SERVICE = re.compile(r"[a-z0-9.-]+\.googleapis\.com")
ROLES = frozenset(
    f"roles/{name}"
    for name in [
        "artifactregistry.admin",
        "artifactregistry.createOnPushWriter",
        "artifactregistry.reader",
        "artifactregistry.writer",
        "autoscaling.metricsWriter",
        "browser",
        "cloudkms.cryptoKeyEncrypterDecrypter",
        "cloudtrace.agent",
        "compute.instanceAdmin.v1",
        "compute.networkAdmin",
        "compute.networkUser",
        "compute.viewer",
        "container.admin",
        "container.clusterAdmin",
        "container.clusterViewer",
        "container.defaultNodeServiceAccount",
        "container.developer",
        "container.hostServiceAgentUser",
        "container.nodeServiceAccount",
        "container.viewer",
        "editor",
        "iam.serviceAccountAdmin",
        "iam.serviceAccountTokenCreator",
        "iam.serviceAccountUser",
        "iam.workloadIdentityUser",
        "logging.logWriter",
        "logging.viewer",
        "monitoring.metricWriter",
        "monitoring.viewer",
        "owner",
        "secretmanager.secretAccessor",
        "stackdriver.resourceMetadata.writer",
        "storage.admin",
        "storage.bucketViewer",
        "storage.folderAdmin",
        "storage.insightsCollectorService",
        "storage.legacyBucketOwner",
        "storage.legacyBucketReader",
        "storage.legacyBucketWriter",
        "storage.legacyObjectOwner",
        "storage.legacyObjectReader",
        "storage.objectAdmin",
        "storage.objectCreator",
        "storage.objectUser",
        "storage.objectViewer",
        "tpu.admin",
        "tpu.viewer",
        "viewer",
    ]
)
"""Predefined roles that training stacks use: https://cloud.google.com/iam/docs/roles-permissions"""


@rule("https://cloud.google.com/iam/docs/service-accounts-create")
def service_account_id(inputs: Properties) -> Found:
    """Require a valid id of 6 to 30 characters."""
    name = inputs.get("accountId")
    if isinstance(name, str) and not (_ACCOUNT.fullmatch(name) and 6 <= len(name) <= 30):
        yield "accountId", f"{name!r} must be 6 to 30 lower-case letters, digits and '-', first a letter, last not '-'"


@rule("https://cloud.google.com/iam/docs/principal-identifiers")
def member_syntax(inputs: Properties) -> Found:
    """Require a valid identifier of the principal that gets the role."""
    member = inputs.get("member")
    if isinstance(member, str) and not _MEMBER.fullmatch(member):
        yield "member", f"{member!r} is not a principal: write serviceAccount:, user:, group:, domain: or principal://"


@rule("https://cloud.google.com/iam/docs/roles-permissions")
def role_exists(inputs: Properties) -> Found:
    """Require a known predefined role, or a custom role by its full name."""
    role = inputs.get("role")
    if isinstance(role, str) and role not in ROLES and not _CUSTOM_ROLE.fullmatch(role):
        yield "role", f"{role!r} is neither a predefined role that the rehearsal knows nor projects/PROJECT/roles/NAME"


@admission("https://cloud.google.com/kubernetes-engine/docs/how-to/workload-identity")
def workload_pool_exists(inputs: Properties, state: CloudState) -> Found:
    """Require the workload identity pool of a member that is a Kubernetes service account.

    GKE creates the pool with a project's first cluster that uses Workload Identity.
    """
    member = inputs.get("member")
    match = _MEMBER.fullmatch(member) if isinstance(member, str) else None
    if match and (pool := match["pool"]):
        clusters = state.of_type("gcp:container/cluster:Cluster")
        pools = {(each.inputs.get("workloadIdentityConfig") or {}).get("workloadPool") for each in clusters}
        if pool not in pools:
            yield "member", f"identity pool {pool} does not exist: no cluster of the project has created it yet"


@admission("https://cloud.google.com/iam/docs/principal-identifiers")
def member_exists(inputs: Properties, state: CloudState) -> Found:
    """Require that a member exists, if it is a service account of a project of this rehearsal."""
    member = inputs.get("member")
    match = _OWN_ACCOUNT.fullmatch(member) if isinstance(member, str) else None
    projects = {each.inputs.get("project") for each in state.of_type("gcp:serviceaccount/account:Account")}
    projects.add(inputs.get("project"))
    if (
        match
        and match["project"] in projects
        and state.find(match["email"], "gcp:serviceaccount/account:Account") is None
    ):
        yield "member", f"service account {match['email']} does not exist"


@rule("https://cloud.google.com/service-usage/docs/enable-disable")
def service_name(inputs: Properties) -> Found:
    """Require the full name of an API."""
    service = inputs.get("service")
    if isinstance(service, str) and not _SERVICE.fullmatch(service):
        yield "service", f"{service!r} must be like container.googleapis.com"


MEMBER_RULES = (member_syntax, role_exists, workload_pool_exists, member_exists)
