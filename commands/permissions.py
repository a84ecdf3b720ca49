"""`python -m commands.permissions STACK`: the minimum permissions to preview, create, destroy and list a cloud stack.

Prints JSON: an IAM policy for EKS, the roles with their conditions for GKE. docs/workflows.md says who gets them. Not
yet tested on a cloud account.
"""

from __future__ import annotations

import argparse
import json
import sys

from commands.environment import PROJECT
from commands.review.recorded import run
from stack.config import load_file


def main(arguments: list[str]) -> int:
    """Print the permissions. Return 0, or 2 for a stack without a cloud or for settings that cannot be read."""
    parser = argparse.ArgumentParser(prog="python -m commands.permissions", description=__doc__)
    parser.add_argument("stack", help="a stack of GKE or EKS, such as `eks`")
    stack = parser.parse_args(arguments).stack
    try:
        config = load_file(PROJECT / f"Pulumi.{stack}.yaml")
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    cloud = config.cloud.provisioned
    if cloud is None:
        print(f"stack {stack}: a {config.platform.kind} platform needs no permissions in a cloud", file=sys.stderr)
        return 2
    print(json.dumps(cloud.permissions(run(cloud.declare).records), indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
