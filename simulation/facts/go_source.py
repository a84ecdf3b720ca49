"""Static evaluation of the Go declarations that describe a provider's schemas."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import tree_sitter_go
from tree_sitter import Language, Node, Parser

_PARSER = Parser(Language(tree_sitter_go.language()))
_NAMES = "names"
"""Package of the AWS provider with constants for the names of inputs."""
_SCHEMAS = re.compile(r"\*schema\.(Schema|Resource)\b|^schema\.\w*Attribute$")
_MERGE_FUNCTIONS = ("MergeSchemas", "ResourceIamMember")
"""Functions that merge the maps among their arguments. ResourceIamMember returns a resource with the merged schemas."""
_LITERALS: Mapping[str, Callable[[str], Any]] = {
    "interpreted_string_literal": ast.literal_eval,
    "raw_string_literal": lambda text: text[1:-1],
    "int_literal": lambda text: int(text.replace("_", ""), 0),
    "float_literal": float,
    "true": lambda _text: True,
    "false": lambda _text: False,
    "nil": lambda _text: None,
}
"""Type of a syntax node -> function that returns the value of its text."""


@dataclass(frozen=True)
class Name:
    """Name that GoSource does not evaluate, such as `schema.TypeString`."""

    text: str

    @property
    def last(self) -> str:
        """The name without its package."""
        return self.text.rpartition(".")[2]


@dataclass(frozen=True)
class Call:
    """Call that GoSource does not evaluate, such as `validation.IntAtLeast(10)`."""

    name: Name
    arguments: tuple[Any, ...]
    line: str
    types: tuple[str, ...] = ()
    """Type arguments."""


@dataclass
class Literal:
    """Composite literal: a struct or a map with its fields."""

    fields: dict[str, Any]
    lines: Mapping[str, str] = field(default_factory=dict)
    """Field -> `file:line`."""
    type: str = ""


@dataclass(frozen=True)
class _File:
    path: Path
    root: Node


class GoSource:
    """Go source of a provider. Packages are folders below `root`."""

    def __init__(
        self, root: Path, constants: Mapping[str, Any] | None = None, opaque: Collection[str] = frozenset()
    ) -> None:
        self.root = root
        self._constants = constants or {}
        """Full name -> value, for names that other modules declare."""
        self.opaque = opaque
        """Names to leave unevaluated, even if the source declares them."""

    def function(self, folder: str, name: str) -> Any:
        """Return the return value of a package's function `name`. Raises LookupError."""
        file, node = self._declared(folder, name)
        return _Scope(self, file, folder, {}).run(_child(node, "body"))

    def assigned(self, folder: str, receiver: str, method: str, field: str) -> Any:
        """Return the value that a method assigns to a field of its last parameter. Raises LookupError."""
        declared = re.compile(rf"^func \(\w+ \*?{re.escape(receiver)}\) {re.escape(method)}\b", re.MULTILINE)
        for path in sorted((self.root / folder).glob("*.go")):
            if declared.search(path.read_text(encoding="utf-8")):
                file = self._parsed(path)
                node = next(each for each in file.root.named_children if declared.match(_text(each)))
                scope = _Scope(self, file, folder, {})
                scope.run(_child(node, "body"))
                return scope.names[f"{_parameters(node)[-1]}.{field}"]
        raise LookupError(f"{folder} declares no method {method} of {receiver}")

    def value(self, folder: str, name: str) -> Any:
        """Return the value of a package's variable, constant or function. Raises LookupError."""
        file, node = self._declared(folder, name)
        scope = _Scope(self, file, folder, {})
        return scope.run(_child(node, "body")) if node.type == "function_declaration" else scope.value(node)

    def line(self, folder: str, name: str) -> str:
        """Return the `file:line` of a package's declaration. Raises LookupError."""
        return self.where(*self._declared(folder, name))

    def iam_member_of(self, *maps: Literal) -> Literal:
        """Return the resource of a Google IAM member: the base schema, merged with the schemas `maps` of its parent."""
        base = self.value("tpgiamresource", "IamMemberBaseSchema")
        return Literal({"Schema": _union([base, *maps])}, {}, "schema.Resource")

    def where(self, file: _File, node: Node) -> str:
        """Return the `file:line` of a node, relative to the root."""
        return f"{file.path.relative_to(self.root)}:{node.start_point[0] + 1}"

    def constant(self, text: str) -> Any:
        """Return the value of a name of another package, or a Name if the value is unknown."""
        return self._constants.get(text, Name(text))

    @cache  # noqa: B019 - one source lives as long as the command
    def _declared(self, folder: str, name: str) -> tuple[_File, Node]:
        declared = re.compile(rf"^(func |var |const |\s+){re.escape(name)}\b", re.MULTILINE)
        for path in sorted((self.root / folder).glob("*.go")):
            if path.name.endswith("_test.go"):
                continue
            text = path.read_text(encoding="utf-8")
            if declared.search(text):
                file = self._parsed(path)
                if node := _top_level(file.root, name):
                    return file, node
        raise LookupError(f"{folder} declares no {name}")

    @cache  # noqa: B019 - one source lives as long as the command
    def _parsed(self, path: Path) -> _File:
        return _File(path, _PARSER.parse(path.read_bytes()).root_node)


def _top_level(root: Node, name: str) -> Node | None:
    """Return the declaration of a name in a file: a function, or the value of a variable or constant."""
    for child in root.named_children:
        if child.type == "function_declaration" and _text(child.child_by_field_name("name")) == name:
            return child
        if child.type in ("var_declaration", "const_declaration"):
            for spec in _members(child, "var_spec", "const_spec"):
                names = spec.children_by_field_name("name")
                values = spec.child_by_field_name("value")
                for index, each in enumerate(names):
                    if _text(each) == name and values is not None:
                        return values.named_children[index]
    return None


def _members(node: Node, *types: str) -> list[Node]:
    """Return the children of a node, and the elements of lists in place of the lists. `types` selects nodes by type."""
    found = []
    for each in node.named_children:
        found += each.named_children if each.type.endswith("_list") else [each]
    return [each for each in found if not types or each.type in types]


def _child(node: Node, field: str) -> Node:
    found = node.child_by_field_name(field)
    assert found is not None, f"{node.type} has no {field}"
    return found


def _text(node: Node | None) -> str:
    return node.text.decode() if node is not None and node.text is not None else ""


@dataclass
class _Scope:
    """Scope of an expression: its file, its package and the local names."""

    source: GoSource
    file: _File
    folder: str
    names: dict[str, Any]

    def run(self, block: Node) -> Any:
        """Return the return value of a block. Ignore conditional statements."""
        for statement in _members(block):
            if statement.type in ("short_var_declaration", "assignment_statement"):
                self._assign(statement)
            elif statement.type == "var_declaration":
                for spec in _members(statement, "var_spec"):
                    if (value := spec.child_by_field_name("value")) is not None:
                        self.names[_text(spec.child_by_field_name("name"))] = self.value(value.named_children[0])
            elif statement.type == "return_statement" and statement.named_children:
                return self.value(statement.named_children[0].named_children[0])
        return None

    def _assign(self, statement: Node) -> None:
        target, value = (_child(statement, side).named_children[0] for side in ("left", "right"))
        if target.type in ("identifier", "selector_expression"):
            self.names[_text(target)] = self.value(value)
        elif target.type == "index_expression":
            whole = self.value(target.named_children[0])
            if isinstance(whole, Literal):
                whole.fields[str(self.value(target.named_children[1]))] = self.value(value)

    def value(self, node: Node) -> Any:
        """Return the value of an expression; a Name or a Call if GoSource cannot evaluate the expression."""
        if literal := _LITERALS.get(node.type):
            return literal(_text(node))
        evaluate = getattr(self, f"_{node.type}", None)
        return evaluate(node) if evaluate else Name(node.type)

    def _literal_element(self, node: Node) -> Any:
        return self.value(node.named_children[0])

    _parenthesized_expression = _literal_element
    _variadic_argument = _literal_element

    def _unary_expression(self, node: Node) -> Any:
        found = self.value(node.named_children[0])
        return -found if _text(node).startswith("-") and isinstance(found, int | float) else found

    def _binary_expression(self, node: Node) -> Any:
        left, right = (self.value(each) for each in node.named_children[:2])
        operator = _text(node.child_by_field_name("operator"))
        same_kind = isinstance(left, str) == isinstance(right, str) and isinstance(left, str | int | float)
        if not same_kind or isinstance(right, Name | Call):
            return Name(_text(node))
        return {"+": lambda: left + right, "-": lambda: left - right, "*": lambda: left * right}.get(
            operator, lambda: Name(_text(node))
        )()

    def _identifier(self, node: Node) -> Any:
        name = _text(node)
        if name in self.names:
            return self.names[name]
        if name in self.source.opaque:
            return Name(name)
        try:
            file, found = self.source._declared(self.folder, name)
        except LookupError:
            return self.source.constant(name)
        if found.type == "function_declaration":
            return Name(name)
        return _Scope(self.source, file, self.folder, {}).value(found)

    def _selector_expression(self, node: Node) -> Any:
        text = _text(node)
        package, _, name = text.partition(".")
        folder = self._imported(package)
        if folder is not None:
            try:
                plain = name[:1].isupper() and ("Schema" in name or package == _NAMES)
                return self.source.value(folder, name) if plain else Name(text)
            except LookupError:
                pass
        return self.source.constant(text)

    def _func_literal(self, node: Node) -> Any:
        return Name(f"function at line {node.start_point[0] + 1}")

    def _type_conversion_expression(self, node: Node) -> Any:
        return Name(_text(node.child_by_field_name("type")))

    def _composite_literal(self, node: Node) -> Any:
        return self._literal_value(_child(node, "body"), _text(node.child_by_field_name("type")))

    def _literal_value(self, node: Node, type_: str = "") -> Any:
        elements = [each for each in node.named_children if each.type != "comment"]
        if not any(each.type == "keyed_element" for each in elements):
            if type_.startswith("map[") or (not elements and not type_.startswith("[]")):
                return Literal({}, {}, type_)
            return [self.value(each) for each in elements]
        fields, lines = dict[str, Any](), dict[str, str]()
        is_map = type_.startswith("map[")
        for each in elements:
            key, value = each.named_children[0], each.named_children[-1]
            inner = key.named_children[0]
            plain_field = inner.type == "identifier" and not is_map
            found = _text(inner) if plain_field else self.value(inner)
            if found == "SchemaFunc":
                found, result = "Schema", _OnceValue(value.named_children[0], self).call()
            else:
                result = self.value(value)
            fields[str(found.text if isinstance(found, Name) else found)] = result
            lines[str(found)] = self.source.where(self.file, key)
        return Literal(fields, lines, type_)

    def _call_expression(self, node: Node) -> Any:
        given = _child(node, "arguments")
        types = node.child_by_field_name("type_arguments")
        text = _text(_child(node, "function"))
        if text.endswith("OnceValue"):
            return self._once(given.named_children[0])
        values = tuple(self.value(each) for each in given.named_children if each.type != "comment")
        if text.rpartition(".")[2] in _MERGE_FUNCTIONS:
            maps = [each for each in values if isinstance(each, Literal)]
            return self.source.iam_member_of(*maps) if text.endswith("IamMember") else _union(maps)
        found = self._schema_from_call(text, values)
        if found is not None:
            return found
        argument = tuple(_text(each) for each in types.named_children) if types is not None else ()
        return Call(Name(text), values, self.source.where(self.file, node), argument)

    def _once(self, function: Node) -> Any:
        if function.type == "identifier":
            file, declared = self.source._declared(self.folder, _text(function))
            return _OnceValue(declared, _Scope(self.source, file, self.folder, {}))
        if function.type == "call_expression":
            return self._factory_result(function)
        return _OnceValue(function, self)

    def _factory_result(self, call: Node) -> Any:
        """Return the function that another function of this package returns, with its parameters bound."""
        file, declared = self.source._declared(self.folder, _text(call.child_by_field_name("function")))
        given = map(self.value, _child(call, "arguments").named_children)
        names = dict(zip(_parameters(declared), given, strict=False))
        function = _members(_child(declared, "body"))[-1].named_children[0].named_children[0]
        return _OnceValue(function, _Scope(self.source, file, self.folder, names))

    def _schema_from_call(self, text: str, values: tuple[Any, ...]) -> Any:
        """Return the result of a provider's function that returns schemas or a list of strings; None for others."""
        package, dot, name = text.partition(".")
        folder = self._imported(package) if dot else self.folder
        if folder is None:
            return None
        try:
            file, found = self.source._declared(folder, name if dot else text)
        except LookupError:
            return None
        if found.type != "function_declaration":
            once = _Scope(self.source, file, folder, {}).value(found)
            return once.call() if isinstance(once, _OnceValue) else None
        result = _text(found.child_by_field_name("result"))
        is_list_of_words = (
            result == "[]string" and not _parameters(found) and not found.child_by_field_name("type_parameters")
        )
        if not is_list_of_words and not _SCHEMAS.search(result):
            return None
        scope = _Scope(self.source, file, folder, dict(zip(_parameters(found), values, strict=False)))
        return scope.run(_child(found, "body"))

    def _imported(self, package: str) -> str | None:
        """Return the folder of an imported package of this provider, relative to the root."""
        for name, path in _imports(self.file.root):
            if name == package:
                for depth in range(1, 5):
                    folder = "/".join(path.split("/")[-depth:])
                    if (self.source.root / folder).is_dir():
                        return folder
        return None


@dataclass(frozen=True)
class _OnceValue:
    """Value of `sync.OnceValue`."""

    function: Node
    scope: _Scope

    def call(self) -> Any:
        return self.scope.run(_child(self.function, "body"))


def _parameters(function: Node) -> list[str]:
    parameters = function.child_by_field_name("parameters")
    declared = parameters.named_children if parameters is not None else []
    return [_text(name) for each in declared for name in each.children_by_field_name("name")]


def _union(maps: list[Literal]) -> Literal:
    fields = {key: value for each in maps for key, value in each.fields.items()}
    return Literal(fields, {key: value for each in maps for key, value in each.lines.items()}, "map[")


def _imports(root: Node) -> list[tuple[str, str]]:
    found = []
    for declaration in (each for each in root.named_children if each.type == "import_declaration"):
        for spec in _members(declaration, "import_spec"):
            path = _text(spec.child_by_field_name("path"))[1:-1]
            name = _text(spec.child_by_field_name("name"))
            found.append((name or path.rpartition("/")[2], path))
    return found
