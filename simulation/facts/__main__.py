"""`python -m simulation.facts CHECKOUT`: print the differences between a Terraform provider's source and the tables.

CHECKOUT is a checkout of hashicorp/terraform-provider-google-beta or hashicorp/terraform-provider-aws. `--write`
rewrites the tables and keeps the rules written by hand. `--commit` names the commit of a checkout without git.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import re
import subprocess
import sys
from functools import cache, cached_property
from pathlib import Path

from simulation.cloud import fact_checks
from simulation.facts import framework, tables, terraform
from simulation.facts.go_source import GoSource, Literal
from simulation.facts.resources import PROVIDERS, Provider
from simulation.facts.sdk_names import SdkClass


def main(arguments: list[str]) -> int:
    """Print the differences between source and tables.

    Return 1 if there are differences and `--write` is not set. Return 2 if the folder is not a known provider's
    checkout.
    """
    parser = argparse.ArgumentParser(prog="python -m simulation.facts", description=__doc__)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--write", action="store_true", help="rewrite the tables")
    parser.add_argument("--commit", help="commit of a checkout without git")
    options = parser.parse_args(arguments)
    provider = provider_of(options.checkout)
    if provider is None:
        names = ", ".join(each.repository for each in PROVIDERS)
        print(f"{options.checkout}: is not a checkout of {names}", file=sys.stderr)
        return 2
    commit = options.commit or _commit(options.checkout)
    found = False
    for token in provider.resources:
        old = tables.read_table(token)
        new, unnamed = read(options.checkout, provider, token, commit)
        for line in tables.changes(old, new):
            found = True
            print(line)
        if unnamed:
            print(f"{token}: not in Pulumi's SDK: {', '.join(unnamed)}", file=sys.stderr)
        if options.write:
            tables.write_table(tables.updated(old, new))
    return int(found and not options.write)


def provider_of(checkout: Path) -> Provider | None:
    """Return the provider whose source is in a folder; None if it is not a known provider's."""
    return next((each for each in PROVIDERS if (checkout / _marker(each)).is_dir()), None)


def _marker(provider: Provider) -> str:
    return f"{provider.root}/{next(iter(provider.resources.values()))[0]}"


def read(checkout: Path, provider: Provider, token: str, commit: str) -> tuple[tables.Table, list[str]]:
    """Return the table of a resource type, and the inputs that Pulumi's SDK does not have."""
    source = GoSource(checkout / provider.root, provider.constants, fact_checks.CHECKS)
    folder, function = provider.resources[token]
    resource = _resource(source, folder, function)
    for name, place in provider.common.items():
        common = source.value(*place).call()
        common.fields["ForceNew"] = True
        schema = resource.fields["Schema"]
        resource.fields["Schema"] = Literal(
            {**schema.fields, name: common}, {**schema.lines, name: source.line(*place)}
        )
    reader = terraform.Reader(source, f"{provider.services}/", _api_words(folder.rpartition("/")[2]))
    reader.read(resource, SdkClass.of(token))
    table: tables.Table = {
        "type": token,
        "provider": provider.repository,
        "commit": commit,
        "folder": f"{provider.root}/{provider.services}".removeprefix("./"),
        "inputs": dict(sorted(reader.inputs.items())),
        "plan_functions": terraform.customized(resource),
    }
    tables.keep_names(tables.read_table(token), table)
    table["inputs"] |= tables.newer_inputs(tables.read_table(token), table, reader.outputs)
    return table, reader.unnamed


def _resource(source: GoSource, folder: str, function: str) -> Literal:
    if function.startswith("ResourceIamMember "):
        found = source.iam_member(folder, function.partition(" ")[2])
    elif "." in function:
        receiver, _, method = function.partition(".")
        found = framework.as_sdk(source.assigned(folder, receiver, method, "Schema"))
    else:
        found = source.function(folder, function)
    assert isinstance(found, Literal), f"{folder}: {function} returns no schema"
    return found


class BotocoreWords:
    """The enumerations of a service's types, from AWS's models in botocore; empty if botocore is not installed.

    Install botocore by hand, because its requirements differ from Trainyard's.
    """

    def __init__(self, service: str) -> None:
        self._types: dict[str, list[str]] = {}
        if importlib.util.find_spec("botocore") is None:
            return
        session = importlib.import_module("botocore.session").get_session()
        if service in session.get_available_services():
            model = session.get_service_model(service)
            shapes = ((name, model.shape_for(name)) for name in model.shape_names)
            self._types = {name: list(shape.enum) for name, shape in shapes if getattr(shape, "enum", None)}

    def of_type(self, name: str) -> list[str] | None:
        """Return the words of a type such as `types.AMITypes`; None if the type is unknown."""
        return self._types.get(name.rpartition(".")[2])

    def of_constant(self, name: str) -> str | None:
        """Return the word of a constant of AWS's SDK for Go; None if it is unknown.

        The constant's name consists of the type's name and the word.
        """
        return self._constants.get(name.lower())

    @cached_property
    def _constants(self) -> dict[str, str]:
        return {
            f"{kind}{re.sub('[^0-9A-Za-z]', '', word)}".lower(): word
            for kind, words in self._types.items()
            for word in words
        }


@cache
def _api_words(service: str) -> BotocoreWords:
    return BotocoreWords(service)


def _commit(checkout: Path) -> str:
    words = ["git", "-C", str(checkout), "rev-parse", "HEAD"]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
