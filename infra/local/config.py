"""Settings of the local cluster. No Pulumi."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from infra.local.settings import MAX_NAME_LENGTH
from settings.kubernetes_values import check_label
from settings.types import NamespaceName, Section, with_code

_cluster_name = with_code("cluster_name", partial(check_label, limit=MAX_NAME_LENGTH))


class LocalConfig(Section):
    """Kubernetes cluster on this machine that belongs to the stack; other stacks and checkouts have separate
    clusters."""

    kind: Literal["local"]
    """Cluster on this machine."""
    name: Annotated[str, Field(max_length=MAX_NAME_LENGTH), AfterValidator(_cluster_name)] | None = None
    """Prefix of the nodes' names and name in kubeconfigs; by default the stack's name."""
    nodes: Annotated[int, Field(ge=1, le=8)] = 2
    """Number of nodes; each has an equal share of this machine's CPUs and memory."""
    port: Annotated[int, Field(ge=1024, le=65535)] | None = None
    """Port of the API server on 127.0.0.1; by default a free port, which the cluster keeps."""
    namespace: NamespaceName = "training"
    """Kubernetes namespace of the jobs, created and deleted by the stack."""
