"""Makes `pulumi.runtime.proto` importable without the SDK's own `__init__`, which costs half a second a start."""

import importlib.util
import sys
import types
from pathlib import Path


def install() -> None:
    """Put bare `pulumi` and `pulumi.runtime` packages in place, in a process that uses nothing else of the SDK."""
    specification = importlib.util.find_spec("pulumi")
    if specification is None or not specification.submodule_search_locations:
        raise ImportError("the Pulumi SDK is not installed in this environment")
    folder = Path(specification.submodule_search_locations[0])
    for name, path in (("pulumi", folder), ("pulumi.runtime", folder / "runtime")):
        bare = types.ModuleType(name)
        bare.__path__ = [str(path)]
        sys.modules[name] = bare
