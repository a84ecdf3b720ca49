"""Resources that the program declares for a stack's settings, without cloud, credentials or engine.

`python -m commands.review.recorded STACK` prints them as JSON, for a preview that compares two programs.
"""

from __future__ import annotations

import hashlib
import json
import runpy
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import redirect_stdout
from dataclasses import asdict, replace
from typing import Any
from unittest import mock

import pulumi
import yaml
from pulumi.runtime.proto import resource_pb2

from commands.environment import PROJECT
from commands.review.recording import Record, RecordingEngine, run
from infra.image import cloud_image
from infra.local import lifecycle
from infra.local.trainer_image import trainer_image_reference
from setup import operators as operator_steps
from setup.progress import run_steps
from stack.config import CONFIG_NAMESPACE, StackConfig, load_file

PLACEHOLDER = "not the secret"
"""Value of every secret of a stack here."""


def have_objects(operators: Iterable[str]) -> None:
    """Ensure that the cache has the operators' objects that the program reads.

    Takes seconds if they are missing; progress goes to standard error. Raises RuntimeError if they cannot be obtained.
    """
    with redirect_stdout(sys.stderr):
        run_steps(operator_steps.steps(operators, cluster=False))


def recorded_file(text: str, config: StackConfig) -> list[Record]:
    """Return the resources that the program registers for a stack's file. `config` holds the settings in `text`."""
    content: dict[str, Any] = yaml.safe_load(text)["config"]
    named = {str(key) if ":" in str(key) else f"{CONFIG_NAMESPACE}:{key}": value for key, value in content.items()}
    values = {key.partition(":")[2]: value for key, value in named.items() if key.partition(":")[0] == CONFIG_NAMESPACE}
    return recorded(values, sorted({name for job in config.jobs for name in job.secrets.values()}))


def recorded(values: Mapping[str, Any], secrets: Iterable[str]) -> list[Record]:
    """Return the resources that the program registers for the values of `trainyard:` keys. Raises RunError like the
    program.
    """
    named = [f"secrets:{name}" for name in secrets]
    digest = hashlib.sha256(trainer_image_reference().encode()).hexdigest()

    def program() -> Awaitable[None]:
        settings = {f"trainyard:{key}": json.dumps(value, default=str) for key, value in values.items()}
        pulumi.runtime.set_all_config(settings | dict.fromkeys(named, PLACEHOLDER), named)
        main: Callable[[], Awaitable[None]] = runpy.run_path(str(PROJECT / "__main__.py"))["main"]
        return main()

    with (
        mock.patch.object(cloud_image, "prepare_context", return_value=None),
        mock.patch.object(lifecycle, "check_machine", return_value=[]),
    ):
        engine = run(program, RecordingEngine(image_digest=digest))
    requests = {f"{each.type}::{each.name}": each for each in engine.registered}
    return [_with_options(each, requests[each.key]) for each in engine.records]


def _with_options(record: Record, request: resource_pb2.RegisterResourceRequest) -> Record:
    return replace(
        record,
        kept=request.retainOnDelete,
        provider=request.provider.rpartition("::")[0],
        depends={name: tuple(found.urns) for name, found in request.propertyDependencies.items()},
        ignore_changes=tuple(request.ignoreChanges),
        replace_on_changes=tuple(request.replaceOnChanges),
        deletes_first=request.deleteBeforeReplace,
    )


def main(stack: str) -> int:
    """Print the records of a stack of this checkout as JSON. Raises the errors of its settings and its program."""
    file = PROJECT / f"Pulumi.{stack}.yaml"
    config = load_file(file)
    have_objects(config.operators)
    print(json.dumps([asdict(each) for each in recorded_file(file.read_text(encoding="utf-8"), config)]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
