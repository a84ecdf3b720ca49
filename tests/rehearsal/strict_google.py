"""`python -m tests.rehearsal.strict_google`: the simulated Google provider with three traits of the real one.

It dies on an unknown `networkConfig` of a pool that exists, replaces a subnet whose range changes, and updates a
firewall in place. Sources: google-beta/services of terraform-provider-google-beta,
container/resource_container_node_pool.go:2231, compute/resource_compute_subnetwork.go:512,
compute/resource_compute_firewall.go:259.
"""

from __future__ import annotations

import os
from pathlib import Path

import grpc
from pulumi.runtime.proto import provider_pb2, provider_pb2_grpc

from rehearsal.cloud.__main__ import FOLDER
from rehearsal.cloud.lifecycle import Cloud
from rehearsal.cloud.provider import SimulatedProvider
from setup.stand_ins.kubernetes.values import Unknown, from_wire, reveal
from setup.stand_ins.protocol import serve


class StrictGoogle(SimulatedProvider):
    """The simulated provider, stricter where the real one is."""

    def Diff(self, request: provider_pb2.DiffRequest, context: grpc.ServicerContext) -> provider_pb2.DiffResponse:
        """Die as the real one does, or correct what replaces what."""
        news = reveal(from_wire(request.news))
        kind = request.urn.split("::")[2].rpartition("$")[2]
        if kind == "gcp:container/nodePool:NodePool" and isinstance(news.get("networkConfig"), Unknown):
            os._exit(2)
        found = super().Diff(request, context)
        replaces = set(found.replaces)
        if kind == "gcp:compute/subnetwork:Subnetwork":
            replaces |= {"ipCidrRange"} & set(found.diffs)
        if kind == "gcp:compute/firewall:Firewall":
            replaces -= {"network"}
        if kind == "gcp:container/nodePool:NodePool":
            replaces |= {"networkConfig"} & set(found.diffs)
        return provider_pb2.DiffResponse(
            changes=found.changes,
            diffs=found.diffs,
            replaces=sorted(replaces),
            deleteBeforeReplace=bool(replaces) and "name" not in found.diffs,
        )


if __name__ == "__main__":
    provider = StrictGoogle("gcp", Cloud(Path(os.environ[FOLDER]), None))
    serve(lambda server: provider_pb2_grpc.add_ResourceProviderServicer_to_server(provider, server))
