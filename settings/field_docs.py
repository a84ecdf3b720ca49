"""Docstrings below the fields of settings sections, parsed from the source on demand. Pure."""

from __future__ import annotations

import ast
import inspect
import textwrap
from itertools import pairwise

from pydantic import BaseModel


def field_sentences(section: type[BaseModel]) -> dict[str, str]:
    """Return the docstring of each field of a section and of its base classes.

    Pydantic's `use_attribute_docstrings` parses the source at each import. That adds a quarter to the import time of
    the settings. Only error messages and the reference need these texts.
    """
    found: dict[str, str] = {}
    for each in reversed(section.__mro__):
        if not issubclass(each, BaseModel) or each is BaseModel:
            continue
        (definition,) = ast.parse(textwrap.dedent(inspect.getsource(each))).body
        assert isinstance(definition, ast.ClassDef)
        for field, below in pairwise(definition.body):
            match field, below:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(sentence))):
                    found[name] = inspect.cleandoc(sentence)
    return found
