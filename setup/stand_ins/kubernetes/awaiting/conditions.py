"""`pulumi.com/waitFor`: a condition of the object, or a JSONPath into it, in the syntax of `kubectl wait --for`."""

import json
import re
from dataclasses import dataclass
from typing import Any

from setup.stand_ins.kubernetes.awaiting.loop import Progress, Rule
from setup.stand_ins.kubernetes.objects import Object, pluck
from setup.stand_ins.kubernetes.operation import Operation


class WaitForError(Exception):
    """The annotation cannot be understood."""


def rule_for(annotation: str) -> Rule:
    """The rule that an annotation asks for: one expression, or a JSON list of which all must hold."""
    try:
        expressions = json.loads(annotation)
    except ValueError:
        expressions = None
    if not (isinstance(expressions, list) and all(isinstance(element, str) for element in expressions)):
        expressions = [annotation]
    if not expressions:
        raise WaitForError("at least one condition must be specified")
    rules = [_single(expression) for expression in expressions]

    def all_of(operation: Operation, live: Object) -> Progress:
        for rule in rules:
            progress = rule(operation, live)
            if not progress.ready:
                return progress
        return Progress(ready=True)

    return all_of


def _single(expression: str) -> Rule:
    prefix, _, rest = expression.partition("=")
    if prefix == "jsonpath":
        path = JsonPath.parse(rest)
        return lambda _operation, live: path.look(live)
    if prefix == "condition":
        name, _, status = rest.partition("=")
        return lambda _operation, live: _condition(live, name, status or "True")
    raise WaitForError(f'expected a "jsonpath=" or "condition=" prefix, got "{expression}"')


def _condition(live: Object, name: str, wanted: str) -> Progress:
    conditions = pluck(live, "status", "conditions")
    if conditions is None:
        return Progress(status="Has no .status.conditions")
    for condition in conditions:
        if str(condition.get("type")).lower() != name.lower():
            continue
        observed = condition.get("observedGeneration", pluck(live, "status", "observedGeneration"))
        generation = pluck(live, "metadata", "generation")
        if observed is not None and generation is not None and observed < generation:
            return Progress(status=f"Generation {observed} is less than expected {generation}")
        found = str(condition.get("status"))
        if found.lower() == wanted.lower():
            return Progress(ready=True)
        return Progress(status=f"Resource has condition {name}={found} (want {wanted})")
    return Progress(status=f"Waiting for condition {name}={wanted}")


@dataclass(frozen=True)
class JsonPath:
    """A path into an object and, where there is one, the value it must have."""

    text: str
    elements: tuple[str | int, ...]
    wanted: str | None

    @classmethod
    def parse(cls, text: str) -> "JsonPath":
        """Read `{.status.phase}=Running`, or `{.status.phase}` for a value of any kind. Raises WaitForError."""
        match = re.fullmatch(r"\{\s*([^{}]*?)\s*\}(?:=(.+))?", text, re.DOTALL)
        if match is None:
            raise WaitForError(f"format should be jsonpath={{.path}}=value or jsonpath={{.path}}, got {text!r}")
        path = match[1].removeprefix("$")
        elements: list[str | int] = []
        position = 0
        for found in re.finditer(r"""\.?((?:[\w/-]|\\.)+)|\[(\d+|\*)\]|\[['"]([^'"]+)['"]\]""", path):
            if found.start() != position:
                break
            position = found.end()
            name, index, quoted = found.groups()
            elements.append(
                re.sub(r"\\(.)", r"\1", name) if name else int(index) if (index or "").isdigit() else index or quoted
            )
        if position != len(path) or not elements:
            raise WaitForError(f"cannot read the JSONPath {path!r}: use keys, [index], [*] and ['key'] only")
        return cls(text=f"jsonpath={text}", elements=tuple(elements), wanted=match[2])

    def look(self, live: Object) -> Progress:
        """Ready when the path leads to the wanted value, or to any value where none is wanted."""
        observed, generation = pluck(live, "status", "observedGeneration"), pluck(live, "metadata", "generation")
        if observed is not None and generation is not None and observed < generation:
            return Progress(status=f"Waiting for {self.text}")
        found = self.find(live)
        if not found:
            return Progress(status=f"Waiting for {self.text}")
        value = found[0] if isinstance(found[0], str) else json.dumps(found[0])
        if self.wanted in (None, value):
            return Progress(ready=True)
        return Progress(status=f'Waiting for {self.text} (found "{value}")')

    def find(self, live: Any) -> list[Any]:
        """The values to which the path leads."""
        found = [live]
        for element in self.elements:
            reached: list[Any] = []
            for value in found:
                if element == "*" and isinstance(value, list | dict):
                    reached += value if isinstance(value, list) else value.values()
                elif isinstance(element, int) and isinstance(value, list):
                    reached += value[element : element + 1]
                elif isinstance(value, dict) and element in value:
                    reached.append(value[element])
            found = reached
        return found
