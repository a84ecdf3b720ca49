"""Makes single modules of `pulumi.runtime.proto` importable without the SDK, whose import takes 0.3 s."""

import importlib.util
import sys
import types
from pathlib import Path


def install() -> None:
    """Replace the SDK's packages by empty ones, in a process that needs no other parts of the SDK."""
    specification = importlib.util.find_spec("pulumi")
    if specification is None or not specification.submodule_search_locations:
        raise ImportError("the Pulumi SDK is not installed in this environment")
    folder = Path(specification.submodule_search_locations[0])
    for name in ("pulumi", "pulumi.runtime", "pulumi.runtime.proto"):
        bare = types.ModuleType(name)
        bare.__path__ = [str(folder.joinpath(*name.split(".")[1:]))]
        sys.modules[name] = bare
