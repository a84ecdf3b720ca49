"""Start the Python language host. The last argument is the engine's address."""

import importlib.util
import sys
import types
from pathlib import Path


def install_bare_sdk() -> None:
    """Make single modules of `pulumi.runtime.proto` importable without the SDK, whose import takes 0.3 s.

    The SDK's packages are empty in this process, which needs no other parts of the SDK.
    """
    specification = importlib.util.find_spec("pulumi")
    if specification is None or not specification.submodule_search_locations:
        raise ImportError("the Pulumi SDK is not installed in this environment")
    folder = Path(specification.submodule_search_locations[0])
    for name in ("pulumi", "pulumi.runtime", "pulumi.runtime.proto"):
        bare = types.ModuleType(name)
        bare.__path__ = [str(folder.joinpath(*name.split(".")[1:]))]
        sys.modules[name] = bare


def main(engine_address: str) -> None:
    """Serve the language host until the engine ends this process."""
    install_bare_sdk()

    from pulumi.runtime.proto import language_pb2_grpc

    from setup.plugin_process import serve
    from setup.stand_ins.host import PythonLanguageHost

    host = PythonLanguageHost(engine_address=engine_address)
    serve(lambda server: language_pb2_grpc.add_LanguageRuntimeServicer_to_server(host, server))


if __name__ == "__main__":
    main(sys.argv[-1])
