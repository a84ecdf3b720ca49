"""Makes the messages in `pulumi.runtime.proto` importable one by one, without the SDK, which costs a start 0.3 s."""

import importlib.util
import sys
import types
from pathlib import Path


def install() -> None:
    """Put bare packages in the place of the SDK's, in a process that uses nothing else of it."""
    specification = importlib.util.find_spec("pulumi")
    if specification is None or not specification.submodule_search_locations:
        raise ImportError("the Pulumi SDK is not installed in this environment")
    folder = Path(specification.submodule_search_locations[0])
    for name in ("pulumi", "pulumi.runtime", "pulumi.runtime.proto"):
        bare = types.ModuleType(name)
        bare.__path__ = [str(folder.joinpath(*name.split(".")[1:]))]
        sys.modules[name] = bare
