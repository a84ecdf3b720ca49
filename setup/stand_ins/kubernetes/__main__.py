"""Starts the `kubernetes` provider: the last argument, where there is one, is the engine's address."""

import sys

from setup.stand_ins import bare_sdk

bare_sdk.install()

from pulumi.runtime.proto import provider_pb2_grpc  # noqa: E402  (after the bare packages are in place)

from setup.stand_ins.kubernetes.provider import KubernetesProvider  # noqa: E402  (after the bare packages too)
from setup.stand_ins.protocol import serve  # noqa: E402  (after the bare packages too)

engine_address = sys.argv[1] if len(sys.argv) > 1 else ""
serve(
    lambda server: provider_pb2_grpc.add_ResourceProviderServicer_to_server(KubernetesProvider(engine_address), server)
)
