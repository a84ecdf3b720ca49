"""`python -m simulation.facts CHECKOUT`: print the differences between a Terraform provider's source and the tables.

CHECKOUT is a checkout of hashicorp/terraform-provider-google-beta or hashicorp/terraform-provider-aws. `--write`
rewrites the tables and keeps the rules that people wrote. `--commit` names the commit of a checkout without git.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from simulation.cloud import fact_check
from simulation.cloud.fact_table import FOLDER, file_name, parts
from simulation.facts import terraform
from simulation.facts.go_source import GoSource, Literal
from simulation.facts.names import SdkClass, botocore_words
from simulation.facts.resources import PROVIDERS, Provider
from simulation.facts.terraform import ANONYMOUS_FUNCTION

Table = dict[str, Any]
"""Facts of a resource type, as in its JSON file."""
HAND_WRITTEN_KEYS = ("rules", "delete_before_replace")
"""Keys whose values people write."""


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
        old = read_table(token)
        new, unnamed = read(options.checkout, provider, token, commit)
        for line in changes(old, new):
            found = True
            print(line)
        if unnamed:
            print(f"{token}: not in Pulumi's SDK: {', '.join(unnamed)}", file=sys.stderr)
        if options.write:
            write_table(updated(old, new))
    return int(found and not options.write)


def provider_of(checkout: Path) -> Provider | None:
    """Return the provider whose source is in a folder; None if it is not a known provider's."""
    return next((each for each in PROVIDERS if (checkout / _marker(each)).is_dir()), None)


def _marker(provider: Provider) -> str:
    return f"{provider.root}/{next(iter(provider.resources.values()))[0]}"


def read(checkout: Path, provider: Provider, token: str, commit: str) -> tuple[Table, list[str]]:
    """Return the table of a resource type, and the inputs that Pulumi's SDK does not have."""
    source = GoSource(checkout / provider.root, provider.constants, fact_check.CHECKS)
    folder, function = provider.resources[token]
    resource = _resource(source, folder, function)
    for name, place in provider.common.items():
        common = source.value(*place).call()
        common.fields["ForceNew"] = True
        schema = resource.fields["Schema"]
        resource.fields["Schema"] = Literal(
            {**schema.fields, name: common}, {**schema.lines, name: source.line(*place)}
        )
    reader = terraform.Reader(source, f"{provider.services}/", botocore_words(folder.rpartition("/")[2]))
    reader.read(resource, SdkClass.of(token))
    table: Table = {
        "type": token,
        "provider": provider.repository,
        "commit": commit,
        "folder": f"{provider.root}/{provider.services}".removeprefix("./"),
        "inputs": dict(sorted(reader.inputs.items())),
        "plan_functions": terraform.plan_functions(resource),
    }
    keep_names(read_table(token), table)
    table["inputs"] |= newer_inputs(read_table(token), table, reader.outputs)
    return table, reader.unnamed


def _resource(source: GoSource, folder: str, function: str) -> Literal:
    if function.startswith("ResourceIamMember "):
        found = source.iam_member(folder, function.partition(" ")[2])
    elif "." in function:
        receiver, _, method = function.partition(".")
        found = terraform.as_sdk(source.assigned(folder, receiver, method, "Schema"))
    else:
        found = source.function(folder, function)
    assert isinstance(found, Literal), f"{folder}: {function} returns no schema"
    return found


def _commit(checkout: Path) -> str:
    words = ["git", "-C", str(checkout), "rev-parse", "HEAD"]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()


def read_table(token: str, folder: Path = FOLDER) -> Table:
    """Return the table of a resource type; empty if there is none."""
    file = folder / file_name(token)
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}


def write_table(table: Table, folder: Path = FOLDER) -> None:
    """Write a table to its file."""
    file = folder / file_name(table["type"])
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(formatted(table), encoding="utf-8")


def formatted(table: Table) -> str:
    """Return a table as JSON with one input or one rule per line."""
    lines = []
    for key, value in table.items():
        if isinstance(value, dict):
            inner = [f"  {json.dumps(name)}: {json.dumps(each)}" for name, each in value.items()]
            lines.append(f'"{key}": {{\n' + ",\n".join(inner) + "\n}")
        elif isinstance(value, list):
            inner = [f"  {json.dumps(each)}" for each in value]
            lines.append(f'"{key}": [\n' + ",\n".join(inner) + "\n]")
        else:
            lines.append(f'"{key}": {json.dumps(value)}')
    return "{\n" + ",\n".join(lines) + "\n}\n"


def updated(old: Table, new: Table) -> Table:
    """Return `new` with the keys in HAND_WRITTEN_KEYS from `old`."""
    return {**new, **{key: old[key] for key in HAND_WRITTEN_KEYS if key in old}}


def keep_names(old: Table, new: Table) -> None:
    """Name anonymous functions in `new` as people named them in `old`."""
    for path, fact in new["inputs"].items():
        for key in ("suppress", "check"):
            if fact.get(key) == ANONYMOUS_FUNCTION and (name := old.get("inputs", {}).get(path, {}).get(key)):
                fact[key] = name


def newer_inputs(old: Table, new: Table, outputs: Collection[str]) -> Table:
    """Return inputs of the old table that Pulumi's SDK has and the source does not know yet.

    The table has only their types. A provider's source that is older than the SDK lacks them.
    """
    found: Table = {}
    for path, fact in old.get("inputs", {}).items():
        parent = path.rpartition(".")[0]
        owner = {**new["inputs"], **found}.get(parent, {"type": ""})
        is_in_block = not parent or parts(owner["type"])[1] == "block"
        if fact["line"].startswith("pulumi-") and path not in new["inputs"] and path not in outputs and is_in_block:
            found[path] = fact
    return found


def changes(old: Table, new: Table) -> Iterator[str]:
    """Yield the changed facts of a table as lines of text."""
    before, after = old.get("inputs", {}), new["inputs"]
    for name in sorted({*before, *after}):
        if name not in after:
            yield f"{new['type']} {name}: removed"
        elif name not in before:
            yield f"{new['type']} {name}: added, {_without_line(after[name])}"
        else:
            for key in sorted(({*before[name], *after[name]}) - {"line", "replace_line"}):
                was, now = before[name].get(key), after[name].get(key)
                if was != now:
                    yield f"{new['type']} {name}.{key}: {was!r} -> {now!r}, {after[name]['line']}"
    if old and old.get("plan_functions") != new.get("plan_functions"):
        yield f"{new['type']} plan_functions: {old.get('plan_functions')} -> {new.get('plan_functions')}"


def _without_line(fact: dict[str, Any]) -> str:
    return json.dumps({key: value for key, value in fact.items() if key != "line"})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
