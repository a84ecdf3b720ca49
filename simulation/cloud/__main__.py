"""Start the simulated provider of a package: `python -m simulation.cloud PACKAGE [engine address]`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pulumi.runtime.proto import provider_pb2_grpc

from setup.plugin_protocol import serve
from simulation.cloud.lifecycle import Cloud
from simulation.cloud.provider import SimulatedProvider
from simulation.cloud.state import read_state

FOLDER_VARIABLE = "TRAINYARD_REHEARSAL"
"""Environment variable with the folder of the rehearsal's state."""


def main(package: str) -> None:
    """Serve until the engine ends this process."""
    folder = Path(os.environ[FOLDER_VARIABLE])
    effects = None
    if read_state(folder).settings.get("endpoint"):
        from simulation.cluster.effects import ClusterEffects

        effects = ClusterEffects(folder)
    provider = SimulatedProvider(package, Cloud(folder, effects))
    serve(lambda server: provider_pb2_grpc.add_ResourceProviderServicer_to_server(provider, server))


if __name__ == "__main__":
    main(sys.argv[1])
