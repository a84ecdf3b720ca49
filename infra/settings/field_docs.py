"""The sentence below each field of a section of the settings, read from the source when somebody asks. Pure."""

from __future__ import annotations

import ast
import inspect
import textwrap
from itertools import pairwise

from pydantic import BaseModel


def field_sentences(section: type[BaseModel]) -> dict[str, str]:
    """Field -> the sentence below it, of a section and of those that it builds on.

    Pydantic can do the same (`use_attribute_docstrings`), but does so at each start of the program, for a quarter of
    the time that the settings take to import; only a refusal and the reference need them.
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
