"""`make down`: `pulumi destroy`, then the proof that nothing of the stack is left on this machine."""

from __future__ import annotations

import os
import sys
import time

from commands.environment import STATE
from commands.stack import PulumiFailed, free_from_dead_owner, outputs, pulumi, stack_exists
from infra.local import lifecycle, traces
from infra.local.settings import ClusterSettings, cache_folder


def clusters_of_this_project(project: str) -> list[ClusterSettings]:
    """The local clusters whose data says that they are this project's."""
    found = []
    for file in sorted((cache_folder() / "clusters").glob("*/settings.json")):
        settings = ClusterSettings.load(file.parent)
        if settings.owner == project:
            found.append(settings)
    return found


def destroy(stack: str) -> bool:
    """Destroy the stack's resources; False where there were none."""
    if not (STATE / "pulumi").exists() and "PULUMI_BACKEND_URL" not in os.environ:
        return False
    if not stack_exists(stack):
        return False
    free_from_dead_owner(stack)
    if '"resources"' not in pulumi("stack", "export", "--stack", stack, quiet=True):
        return False
    outputs(stack)
    pulumi("destroy", "--yes", "--skip-preview", "--stack", stack)
    return True


def main() -> int:
    """Destroy, then look; whatever an interrupted `up` left outside the stack's state is ended too."""
    stack = os.environ.get("STACK", "local")
    begun = time.monotonic()
    try:
        worked = destroy(stack)
    except PulumiFailed as error:
        print(f"make down: {error}", file=sys.stderr)
        return 1
    if stack == "local":
        from commands.environment import PROJECT

        for settings in clusters_of_this_project(str(PROJECT)):
            print(f"cluster {settings.name} was not in the stack's state; ending it")
            worked = lifecycle.stop(settings) or worked
        left = [line for line in everything_left()]
        if left:
            print("make down: left on this machine:", *left, sep="\n  ", file=sys.stderr)
            return 1
    print(f"nothing is left; took {time.monotonic() - begun:.1f} s" if worked else "nothing to do: nothing is up")
    return 0


def everything_left() -> list[str]:
    """What any cluster of this project has left."""
    from commands.environment import PROJECT

    found = []
    for settings in clusters_of_this_project(str(PROJECT)):
        found += traces.leftovers(settings.folder, settings.cgroup)
    return found


if __name__ == "__main__":
    sys.exit(main())
