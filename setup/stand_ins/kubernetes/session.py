"""One configured provider: its settings, its cluster, and the engine it speaks to."""

import threading
from dataclasses import dataclass, field

from setup.stand_ins.kubernetes.cluster import Cluster
from setup.stand_ins.kubernetes.configuration import Settings
from setup.stand_ins.kubernetes.discovery import Discovery
from setup.stand_ins.kubernetes.objects import GroupVersionKind
from setup.stand_ins.kubernetes.operation import Operation, OperationFailed
from setup.stand_ins.protocol import Engine

REMOVE_UNREACHABLE = (
    "If the cluster was deleted, you can remove this resource from Pulumi state by rerunning the operation with the "
    'PULUMI_K8S_DELETE_UNREACHABLE environment variable set to "true"'
)
REFUSED = (
    "{what} is not supported by this stand-in of the kubernetes provider. Install the real plugin, "
    "pulumi-resource-kubernetes: where it is on PATH it is the one that is used."
)


@dataclass
class Session:
    """Shared by all calls of the engine, which come from many threads."""

    settings: Settings
    engine: Engine
    cancelled: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.cluster = Cluster(self.settings.api) if self.settings.api is not None else None
        self.discovery = self.cluster.discovery if self.cluster is not None else Discovery(None)

    def operation(self, urn: str, manager: str) -> Operation:
        """What an operation on a resource needs. Raises OperationFailed where no cluster is reached."""
        if self.cluster is None:
            raise OperationFailed(f"configured Kubernetes cluster is unreachable: {self.settings.unreachable}")
        return Operation(
            cluster=self.cluster,
            engine=self.engine,
            urn=urn,
            manager=manager,
            cancelled=self.cancelled,
            server_side=self.settings.server_side,
            patch_force=self.settings.patch_force,
            upsert=self.settings.upsert,
        )

    def serves(self, kind: GroupVersionKind) -> bool:
        """Whether a reachable cluster has the kind."""
        return self.cluster is not None and self.discovery.has(kind)
