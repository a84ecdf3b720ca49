"""Starts the Python language host. The last argument is the engine's address."""

import sys

from setup.stand_ins import bare_sdk

bare_sdk.install()

from pulumi.runtime.proto import language_pb2_grpc  # noqa: E402  (after the bare packages are in place)

from setup.plugin_protocol import serve  # noqa: E402  (after the bare packages too)
from setup.stand_ins.language.host import PythonLanguageHost  # noqa: E402  (after the bare packages too)

serve(
    lambda server: language_pb2_grpc.add_LanguageRuntimeServicer_to_server(
        PythonLanguageHost(engine_address=sys.argv[-1]), server
    )
)
