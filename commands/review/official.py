"""Plans of the official plugins, compared with Trainyard's own plan. A difference is a defect of Trainyard."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from typing import Any

from commands.review.plan import (
    PROVIDERS,
    Action,
    Step,
    is_selected,
    is_within,
    value_at,
    with_unknown_outputs,
    without_ignored,
)
from commands.review.plugin import Plugin, PluginDied, PluginMissing, PluginRejected, Properties, installed, started
from commands.review.recorded import Record, key_of
from simulation.cloud.values import UNKNOWN, Unknown

PACKAGES = ("gcp", "aws")
ACCOUNT_SETTINGS = ("allowedAccountIds", "forbiddenAccountIds")
"""Provider settings that a review leaves out: with them, the plugin would ask the cloud for the account's id."""
DEFECT_PREFIX = "a defect of Trainyard: "
REPLACE_KINDS = ("ADD_REPLACE", "DELETE_REPLACE", "UPDATE_REPLACE")


@dataclass(frozen=True, kw_only=True)
class PluginReview:
    """Answers of the official plugins."""

    asked: Mapping[str, int] = field(default_factory=dict)
    """Plugin and version -> number of resources that it checked and planned."""
    rejected: Sequence[str] = ()
    differences: Sequence[str] = ()
    """Plans that differ from Trainyard's, with their resources."""
    warnings: Sequence[str] = ()
    missing: Sequence[str] = ()
    """Unavailable plugins, with the reason."""

    @property
    def failures(self) -> list[str]:
        """Reasons not to merge the change."""
        return [f"{DEFECT_PREFIX}{each}" for each in (*self.rejected, *self.differences)]

    def lines(self) -> list[str]:
        """Return this part of the report."""
        found = [
            f"- {name} checked and planned {count} resources{'' if self.failures else ' as Trainyard did'}."
            for name, count in self.asked.items()
        ]
        found += [f"- **{each}**" for each in (*self.rejected, *self.differences)]
        found += [f"- warning: {each}" for each in self.warnings]
        found += [f"- **Not checked** by {each}" for each in self.missing]
        return ["", "Official plugins:", *found] if found else []


def review_by_plugins(before: Iterable[Record], after: Iterable[Record], steps: Iterable[Step]) -> PluginReview:
    """Check and plan a change with the plugins of the records' clouds. `steps` is Trainyard's own plan."""
    olds, news = list(before), list(after)
    own_actions = {f"{each.type}::{each.name}": each.action for each in steps}
    asked, rejected, differences = dict[str, int](), list[str](), list[str]()
    warnings, missing = list[str](), list[str]()
    for package in PACKAGES:
        if not any(_is_in_package(each, package) for each in (*olds, *news)):
            continue
        name = f"{package} {metadata.version(f'pulumi-{package}')}"
        try:
            with started(installed(package)) as plugin:
                plan = _Plan(plugin, package, olds, news)
                plan.make()
        except (PluginMissing, PluginDied, PluginRejected) as error:
            missing.append(f"{name}: {error}")
            continue
        asked[name] = len(plan.actions)
        rejected += plan.rejected
        warnings += plugin.warnings
        for key, action in plan.actions.items():
            own_action = own_actions.get(key, "same")
            if own_action != action:
                why = f" ({', '.join(plan.reasons[key])})" if plan.reasons.get(key) else ""
                differences.append(f"{key.rpartition('::')[2]}: {name} plans {action}{why}, Trainyard {own_action}")
    return PluginReview(
        asked=asked,
        rejected=tuple(rejected),
        differences=tuple(differences),
        warnings=tuple(warnings),
        missing=tuple(missing),
    )


def _is_in_package(record: Record, package: str) -> bool:
    return record.type.startswith(f"{package}:")


class _Plan:
    """Plan of one plugin, resource by resource in the order of the program."""

    def __init__(self, plugin: Plugin, package: str, before: list[Record], after: list[Record]) -> None:
        self._plugin = plugin
        self._package = package
        self._before = {each.key: each for each in before}
        self._after = {each.key: each for each in after}
        self._deletes_first: dict[str, bool] = {}
        self.actions: dict[str, Action] = {}
        """Resource -> the plugin's action."""
        self.reasons: dict[str, list[str]] = {}
        """Resource -> inputs that cause the action."""
        self.rejected: list[str] = []

    def make(self) -> None:
        """Check and plan the package's resources. Stop if the plugin crashes.

        Raises PluginDied or PluginRejected if the plugin cannot be configured.
        """
        self._plugin.configure(self._package, self._provider_settings(self._after))
        replaced_providers = self._replaced_providers()
        for key, record in self._after.items():
            if _is_in_package(record, self._package):
                try:
                    self._plan(record, self._before.get(key), replaced_providers)
                except PluginRejected as error:
                    self.rejected.append(f"{record.name}: {self._package} rejects it: {error}")
                except PluginDied as error:
                    self.rejected.append(f"{record.name}: the plugin crashes: {error}")
                    return
        for key, record in self._before.items():
            if key not in self._after and _is_in_package(record, self._package):
                self.actions[key] = "delete"

    def _provider_settings(self, records: Mapping[str, Record]) -> Properties:
        for record in records.values():
            if record.type == f"{PROVIDERS}{self._package}":
                return {key: value for key, value in record.inputs.items() if key not in ACCOUNT_SETTINGS}
        own_records = (record for record in records.values() if _is_in_package(record, self._package))
        # Only resources of Google Cloud have the input `project`.
        project = next((each.inputs["project"] for each in own_records if each.inputs.get("project")), None)
        return {"project": project} if project else {}

    def _replaced_providers(self) -> set[str]:
        """Return the keys of the package's providers that a change of settings replaces."""
        found = set()
        for key, record in self._after.items():
            old = self._before.get(key)
            is_changed = record.type == f"{PROVIDERS}{self._package}" and old and old.inputs != record.inputs
            if old and is_changed and self._plugin.diff_config(record, old.inputs, record.inputs).replaces:
                found.add(key)
        return found

    def _plan(self, record: Record, old: Record | None, replaced_providers: set[str]) -> None:
        inputs = dict(record.inputs)
        if old:
            inputs = without_ignored(old.inputs, inputs, record.ignore_changes)
        inputs, wrong = self._check(record, inputs, self._after)
        self.rejected += [f"{record.name}: {self._package} rejects {each}" for each in wrong]
        if wrong:
            return
        if old is None:
            self._plugin.planned(record, inputs)
            self.actions[record.key] = "create"
            return
        olds, _ = self._check(old, dict(old.inputs), self._before)
        state = _without_unknowns(self._plugin.planned(old, olds))
        self._decide(record, state, olds, inputs)
        if record.provider and key_of(record.provider) in replaced_providers:
            self.actions[record.key] = "replace"
        if self.actions[record.key] == "replace":
            self._deletes_first.setdefault(record.key, record.deletes_first)

    def _check(self, record: Record, inputs: Properties, records: Mapping[str, Record]) -> tuple[Properties, list[str]]:
        """Return the completed inputs and the problems. Hide placeholders of outputs, which the plugin must not see."""
        hidden = dict(inputs)
        for name, urns in record.depends.items():
            for other in (records[key] for urn in urns if (key := key_of(urn)) in records):
                if name in hidden:
                    hidden[name] = with_unknown_outputs(hidden[name], other.outputs, whole=False)
        checked, wrong = self._plugin.check(record, hidden)
        return _with_original_values(checked, inputs), wrong

    def _decide(self, record: Record, state: Properties, olds: Properties, inputs: Properties) -> None:
        """Set the action for an existing resource, which may use outputs of replaced resources."""
        # `unknown_outputs` are the inputs with unknown values for outputs of replaced resources. In `unknown_inputs`,
        # an input is unknown as a whole if it uses a resource that is deleted before its replacement.
        unknown_outputs, unknown_inputs = dict(inputs), dict(inputs)
        for name, urns in record.depends.items():
            for key in (key_of(urn) for urn in urns):
                if self.actions.get(key) == "replace" and name in unknown_outputs:
                    unknown_outputs[name] = with_unknown_outputs(unknown_outputs[name], self._after[key].outputs)
                    if self._deletes_first[key]:
                        unknown_inputs[name] = UNKNOWN
        self.actions[record.key] = "same"
        unchanged = self._plugin.diff(record, state, olds, olds)
        for news in [unknown_outputs, *([unknown_inputs] if unknown_inputs not in (unknown_outputs, inputs) else [])]:
            found = self._plugin.diff(record, state, olds, news)
            action, reasons = action_of(planned_changes(found, unchanged, olds, news), record.replace_on_changes)
            if action == "replace":
                self.actions[record.key], self.reasons[record.key] = action, reasons
                self._deletes_first[record.key] = record.deletes_first or found.deleteBeforeReplace
                return
            if news is unknown_outputs:
                self.actions[record.key], self.reasons[record.key] = action, reasons


def _with_original_values(checked: Any, inputs: Any) -> Any:
    """Return the completed inputs `checked`, with the original values in place of unknown values."""
    if isinstance(checked, Unknown):
        return inputs
    if isinstance(checked, dict):
        return {
            key: _with_original_values(value, inputs.get(key) if isinstance(inputs, Mapping) else None)
            for key, value in checked.items()
        }
    if isinstance(checked, list):
        originals = inputs if isinstance(inputs, list) and len(inputs) == len(checked) else [None] * len(checked)
        return [_with_original_values(value, each) for value, each in zip(checked, originals, strict=True)]
    return checked


def _without_unknowns(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_unknowns(each) for key, each in value.items() if not isinstance(each, Unknown)}
    if isinstance(value, list):
        return [_without_unknowns(each) for each in value if not isinstance(each, Unknown)]
    return value


@dataclass(frozen=True)
class PlannedChange:
    """Path that a plugin plans to change."""

    path: str
    """Path below the resource; empty if the plugin names none."""
    replaces: bool


def planned_changes(
    found: Any, unchanged: Any, olds: Mapping[str, Any], news: Mapping[str, Any]
) -> list[PlannedChange]:
    """Return the changes in the plugin's answer `found` that the new inputs cause.

    `unchanged` is the plugin's answer for unchanged inputs. It has changes too: the state of a preview lacks values of
    the cloud, so the plugin plans to compute them again. Drop such a change unless the inputs differ at its path.
    """
    computed = set(_changes(unchanged))
    return [
        each
        for each in _changes(found)
        if each not in computed or value_at(olds, each.path) != value_at(news, each.path)
    ]


def action_of(changes: Iterable[PlannedChange], replace_on_changes: Iterable[str]) -> tuple[Action, list[str]]:
    """Return the action that the changes and `replace_on_changes` imply, and the paths that cause it."""
    every = list(changes)
    options = list(replace_on_changes)
    replaced = [each.path for each in every if each.replaces or is_selected(each.path, options)]
    if replaced:
        return "replace", replaced
    return ("update", [each.path for each in every if each.path]) if every else ("same", [])


def _changes(found: Any) -> list[PlannedChange]:
    """Return every path of an answer once: paths of the detailed diff, then paths that only the summary has."""
    kinds = {path: each.Kind.Name(each.kind) for path, each in found.detailedDiff.items()}
    changes = [PlannedChange(path, kind in REPLACE_KINDS) for path, kind in sorted(kinds.items())]
    for path in found.replaces:
        if not any(each.replaces and is_within(each.path, path) for each in changes):
            changes.append(PlannedChange(path, replaces=True))
    for path in found.diffs:
        if not any(is_within(each.path, path) for each in changes):
            changes.append(PlannedChange(path, replaces=False))
    if found.changes == found.DIFF_SOME and not changes:
        changes.append(PlannedChange("", replaces=False))
    return changes
