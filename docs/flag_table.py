"""`python -m docs.flag_table` writes the flags of each recipe to workloads/trainer_flags.json.

Stack validation reads that file, so that it does not need the trainer's libraries.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from trainer.config import RECIPES, LanguageConfig, TrainConfig
from trainer.language.sizes import PRESETS
from trainer.rules import TEXT_SUFFIXES, rules

TARGET = Path(__file__).parents[1] / "workloads" / "trainer_flags.json"


def flag_table() -> str:
    """Return the type, default, aliases and rule of each flag as JSON, one flag a line."""
    recipes = [
        f"{json.dumps(recipe)}: {{\n"
        + ",\n".join(f"{json.dumps(name)}: {json.dumps(flag)}" for name, flag in _flags(config).items())
        + "\n}"
        for recipe, config in RECIPES.items()
    ]
    return "{\n" + ",\n".join(recipes) + "\n}\n"


def _flags(config: type[TrainConfig]) -> dict[str, dict[str, Any]]:
    plain, annotated = get_type_hints(config), get_type_hints(config, include_extras=True)
    found = {}
    for field in dataclasses.fields(config):
        type_ = plain[field.name]
        is_choice = get_origin(type_) is Literal
        flag: dict[str, Any] = {"type": "str" if is_choice else type_.__name__}
        if field.default is not dataclasses.MISSING:
            flag["default"] = field.default
        if field.name == "preset":
            flag["sizes"] = {name: dataclasses.asdict(sizes) for name, sizes in PRESETS.items()}
        if config is LanguageConfig and field.name == "data_dir":
            flag["suffixes"] = TEXT_SUFFIXES
        if is_choice:
            flag["choices"] = get_args(type_)
        for extra in get_args(annotated[field.name]):
            aliases = getattr(extra, "aliases", None) or ()
            if aliases:
                flag["aliases"] = [alias.removeprefix("--").replace("-", "_") for alias in aliases]
        if rule := rules(config).get(field.name):
            flag |= {key: value for key, value in dataclasses.asdict(rule).items() if key != "remedy"}
        defaults = (("is_exclusive", False), ("meaning", ""), ("max_bytes", None))
        found[field.name] = {key: value for key, value in flag.items() if (key, value) not in defaults}
    return found


if __name__ == "__main__":
    TARGET.write_text(flag_table(), encoding="ascii")
