"""Creating, reading, updating and deleting one object, and how each ends in an error the user can act on."""

import copy
from collections.abc import Sequence

from setup.stand_ins.kubernetes import field_managers
from setup.stand_ins.kubernetes.annotations import LAST_APPLIED, PATCH_FORCE, deletion_propagation, is_true, timeout
from setup.stand_ins.kubernetes.api import ApiError
from setup.stand_ins.kubernetes.awaiting.deletion import until_gone
from setup.stand_ins.kubernetes.awaiting.rules import awaits_deletion, check_on_read, until_ready
from setup.stand_ins.kubernetes.diff import merge_patch, parse_property_path
from setup.stand_ins.kubernetes.discovery import NoSuchKind, is_built_in
from setup.stand_ins.kubernetes.naming import unique_name
from setup.stand_ins.kubernetes.objects import Object, is_crd, is_patch_resource, kind_of, name_of, pluck, set_metadata
from setup.stand_ins.kubernetes.operation import Operation, OperationFailed

RETRY_PAUSES = (1.0, 2.0, 4.0, 8.0, 16.0)
"""Seconds before each new attempt to create an object whose kind or namespace is not there yet."""

ALREADY_EXISTS = """{error}

The resource already exists in the cluster. This can happen when:

  - a resource was renamed in the program: give it an alias, or deleteBeforeReplace where it must be replaced;
  - the object was made by someone else: take it over with `pulumi import`, or change single fields of it with a Patch
    resource such as NamespacePatch;
  - an earlier update was interrupted: set upsertExistingObjects on the provider, and creating updates what exists."""

CONFLICT = """server-side apply field conflict detected
The resource managed by field manager "{manager}" had an apply conflict: {error}
Another manager owns these fields. Leave them out of the program, or take them over with the annotation
pulumi.com/patchForce: "true" or the provider option enablePatchForce."""


class PreviewImpossible(Exception):
    """A dry run cannot tell what the real run will do: the object's namespace does not exist yet."""


def create(operation: Operation, inputs: Object, custom_timeout: float) -> Object:
    """Create the object and wait until it is ready. Raises ApiError, NoSuchKind, OperationFailed or PartialFailure."""
    live = _retrying(operation, inputs, dry_run=False)
    operation.clear_status()
    return until_ready(operation, inputs, live, custom_timeout, updating=False)


def preview_create(operation: Operation, inputs: Object) -> Object:
    """What the server would create. Raises as `create`, or PreviewImpossible."""
    return _retrying(operation, inputs, dry_run=True)


def _retrying(operation: Operation, inputs: Object, *, dry_run: bool) -> Object:
    """A namespace or a definition that the same program makes may come a moment after what lies in it."""
    for attempt, pause in enumerate((*RETRY_PAUSES, None)):
        try:
            return _create(operation, inputs, dry_run=dry_run)
        except (ApiError, NoSuchKind) as error:
            if dry_run and isinstance(error, ApiError) and error.is_missing_namespace:
                raise PreviewImpossible(f'namespace does not exist for "{name_of(inputs)}"') from error
            passing = isinstance(error, NoSuchKind) or error.code == 404
            if pause is None or not passing:
                raise
            operation.say(f"Retry #{attempt}; creation failed: {error}")
            operation.pause(pause)
    raise AssertionError("the last attempt returns or raises")


def _create(operation: Operation, inputs: Object, *, dry_run: bool) -> Object:
    patching = operation.upsert or is_patch_resource(operation.urn, kind_of(inputs).kind)
    if not (operation.server_side and patching):
        try:
            return operation.cluster.create(inputs, dry_run=dry_run)
        except ApiError as error:
            if error.reason == "AlreadyExists" and not dry_run:
                raise OperationFailed(ALREADY_EXISTS.format(error=error)) from error
            raise
    force = dry_run or operation.patch_force or is_true(inputs, PATCH_FORCE)
    try:
        return _apply(operation, inputs, force=force, dry_run=dry_run)
    except ApiError as error:
        if not (dry_run and error.reason == "Invalid" and "field is immutable" in str(error)):
            raise
        renamed = copy.deepcopy(inputs)  # the object will be replaced: preview the new one beside the old
        set_metadata(renamed, "name", unique_name(f"{name_of(inputs)}-preview-"))
        return _apply(operation, renamed, force=force, dry_run=True)


def _apply(operation: Operation, inputs: Object, *, force: bool, dry_run: bool) -> Object:
    try:
        return operation.cluster.apply(inputs, manager=operation.manager, force=force, dry_run=dry_run)
    except ApiError as error:
        if error.code == 409:
            raise OperationFailed(CONFLICT.format(manager=operation.manager, error=error)) from error
        raise


def read(operation: Operation, inputs: Object, name: str, *, importing: bool) -> Object:
    """The live object. Raises PartialFailure when it is there and not ready, which an import does not mind."""
    live = operation.cluster.get(inputs, name)
    if not importing:
        check_on_read(operation, inputs, live)
    return live


def update(
    operation: Operation,
    inputs: Object,
    old_inputs: Object,
    old_live: Object,
    ignore_changes: Sequence[str],
    custom_timeout: float,
) -> Object:
    """Change the object to its new inputs and wait until it is ready. Raises as `create`."""
    live = _write(operation, inputs, old_inputs, operation.cluster.get(old_live), ignore_changes, dry_run=False)
    return until_ready(operation, inputs, live, custom_timeout, updating=True)


def preview_update(
    operation: Operation, inputs: Object, old_inputs: Object, old_live: Object, ignore_changes: Sequence[str]
) -> Object:
    """What the server would make of the object."""
    return _write(operation, inputs, old_inputs, operation.cluster.get(old_live), ignore_changes, dry_run=True)


def _write(
    operation: Operation,
    inputs: Object,
    old_inputs: Object,
    live: Object,
    ignore_changes: Sequence[str],
    *,
    dry_run: bool,
) -> Object:
    inputs = copy.deepcopy(inputs)
    if is_crd(inputs):
        # Put in place whole: an applied definition would keep versions and columns that the new one has dropped.
        set_metadata(inputs, "resourceVersion", live["metadata"]["resourceVersion"])
        return operation.cluster.replace(inputs, manager=operation.manager, dry_run=dry_run)
    if not operation.server_side:
        patch = merge_patch(old_inputs, inputs)
        strategic = is_built_in(kind_of(inputs))
        return operation.cluster.merge_patch(
            live, patch, manager=operation.manager, dry_run=dry_run, strategic=strategic
        )
    patching = is_patch_resource(operation.urn, kind_of(inputs).kind)
    if handover := [] if patching else field_managers.takeover(live, operation.manager):
        if dry_run:
            # Nothing is handed over in a preview, so an apply would add to lists instead of changing them.
            patch = merge_patch(old_inputs, inputs)
            return operation.cluster.merge_patch(
                live, patch, manager=operation.manager, dry_run=True, strategic=False
            )  # fmt: skip
        live = operation.cluster.json_patch(live, handover)
    _leave_alone(inputs, live, ignore_changes, operation.manager)
    force = (
        operation.patch_force
        or is_true(inputs, PATCH_FORCE)
        or field_managers.must_force(live, preview=dry_run)
    )  # fmt: skip
    return _apply(operation, inputs, force=force, dry_run=dry_run)


def _leave_alone(inputs: Object, live: Object, ignore_changes: Sequence[str], manager: str) -> None:
    """Keep ignored fields as they are: out of the inputs where another owns them, else at their live value."""
    for path in map(parse_property_path, ignore_changes):
        keys = [str(element) for element in path]
        value = pluck(live, *keys)
        if field_managers.owned_by_others_only(live, keys, manager):
            holder = pluck(inputs, *keys[:-1])
            if isinstance(holder, dict):
                holder.pop(keys[-1], None)
        elif value is not None:
            holder = inputs
            for key in keys[:-1]:
                holder = holder.setdefault(key, {})
            holder[keys[-1]] = copy.deepcopy(value)


def forget_last_applied(old_inputs: Object, old_live: Object) -> None:
    """Count kubectl's record of its last apply among the old inputs, so that an update removes it."""
    recorded = (pluck(old_live, "metadata", "annotations") or {}).get(LAST_APPLIED)
    if recorded is not None and isinstance(old_inputs.get("metadata"), dict):
        old_inputs["metadata"].setdefault("annotations", {}).setdefault(LAST_APPLIED, recorded)


def delete(operation: Operation, inputs: Object, live: Object, name: str, custom_timeout: float) -> None:
    """Delete the object and wait until it is gone; one that is gone already is well deleted."""
    try:
        if operation.server_side and is_patch_resource(operation.urn, kind_of(inputs).kind):
            _relinquish(operation, live)
            return
        operation.cluster.delete(live, name, propagation=deletion_propagation(inputs))
    except NoSuchKind:
        return
    except ApiError as error:
        if error.code == 404:
            return
        raise
    if awaits_deletion(inputs):
        until_gone(operation, live, name, timeout(inputs, custom_timeout))
    operation.clear_status()


def _relinquish(operation: Operation, live: Object) -> None:
    try:
        operation.cluster.relinquish(live, manager=operation.manager)
    except ApiError as error:
        if required := error.causes("FieldValueRequired"):
            raise OperationFailed(
                "this Patch resource is currently managing a required field, so it can't be deleted directly. Either "
                "set the `retainOnDelete` resource option, or transfer ownership of the field before deleting: "
                + ", ".join(required)
            ) from error
        raise
