"""Set up this machine for a stack.

`python -m setup [--no-cluster | --rehearsal SCHEME] [--image] [--operator NAME]... [--builtin-image NAME]...`
"""

from __future__ import annotations

import argparse
import subprocess
import sys

from infra.local.lifecycle import disk_problems
from setup import end_children_on_signals
from setup.disk import remaining_bytes
from setup.go_programs import remove_objects
from setup.progress import run_steps
from setup.steps import rehearsal_steps, steps


def main() -> int:
    """Run the steps. If a step fails, print the error and return 1. The next run continues from that step."""
    parser = argparse.ArgumentParser(prog="python -m setup", description=__doc__)
    parser.add_argument("--no-cluster", action="store_true", help="the stack does not run on a cluster on this machine")
    parser.add_argument("--image", action="store_true", help="the stack builds the trainer image for a cloud")
    parser.add_argument(
        "--rehearsal",
        choices=("gs", "s3"),
        help="prepare a rehearsal of the stack, whose bucket has URLs of this scheme",
    )
    parser.add_argument(
        "--operator", action="append", default=[], metavar="NAME", help="an operator that a job of the stack needs"
    )
    parser.add_argument(
        "--builtin-image", action="append", default=[], metavar="NAME", help="a builtin image that a job uses"
    )
    arguments = parser.parse_args()
    operators = frozenset(arguments.operator)
    end_children_on_signals()
    try:
        if arguments.rehearsal:
            run_steps(rehearsal_steps(operators, arguments.rehearsal, image=arguments.image))
        else:
            images = frozenset(arguments.builtin_image)
            cluster = not arguments.no_cluster
            found = steps(cluster=cluster, image=arguments.image, operators=operators, builtin_images=images)
            if cluster and (needed := remaining_bytes(found)) and (problems := disk_problems(needed)):
                raise RuntimeError("\n".join(problems))
            run_steps(found)
        remove_objects()
    except (OSError, RuntimeError, ValueError, subprocess.SubprocessError) as error:
        print(f"set-up stopped: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
