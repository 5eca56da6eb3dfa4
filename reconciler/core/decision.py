"""The decision of a controller about one object, as values: steps, conditions, Events.

Decisions are made by pure functions and carried out elsewhere, so that each can be printed and
tested. Beside them, the differences of objects that steps are made of. Does not know why
something was decided, and how a step is sent.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final, Literal, TypeAlias
from urllib.parse import quote

from reconciler.core import conditions
from reconciler.core import manifest as m
from reconciler.core.conditions import Cause, Condition
from reconciler.core.manifest import JSON, Manifest
from reconciler.core.refs import Kind, Ref


@dataclass(frozen=True, slots=True)
class Create:
    """POST. That the name is taken means that the decision was made on old facts.

    `cluster` is "" for that of the object which is decided about; also in an Apply.
    """

    kind: Kind
    manifest: Manifest = field(repr=False)  # it may be a Secret
    cluster: str = ""


@dataclass(frozen=True, slots=True)
class Apply:
    """Server-side apply, forced, of the fields that we state; others keep theirs."""

    kind: Kind
    manifest: Manifest = field(repr=False)  # it may be a Secret
    cluster: str = ""


@dataclass(frozen=True, slots=True)
class Patch:
    """RFC 7386. `body` carries metadata.uid and resourceVersion where they are preconditions."""

    ref: Ref
    body: Manifest = field(repr=False)
    subresource: str = ""


@dataclass(frozen=True, slots=True)
class JsonPatch:
    """RFC 6902, atomic. Its `test` operations are the preconditions."""

    ref: Ref
    operations: tuple[Manifest, ...] = field(repr=False)
    subresource: str = ""


@dataclass(frozen=True, slots=True)
class Delete:
    """A delete of exactly the decided object, with its dependents in the background."""

    ref: Ref
    uid: str
    resource_version: str


Step: TypeAlias = Create | Apply | Patch | JsonPatch | Delete


@dataclass(frozen=True, slots=True)
class Task:
    """Steps in order; the first that fails ends the task, and the other tasks go on.

    `failure` is what the object's conditions then say, with the error as the message; None
    where no condition tells of it.
    """

    steps: tuple[Step, ...]
    failure: Cause | None = None


@dataclass(frozen=True, slots=True)
class Note:
    """A Kubernetes Event about the object: `reason` in CamelCase, `message` without secrets."""

    reason: str
    message: str
    type: Literal["Normal", "Warning"] = "Normal"
    action: str = "Reconcile"


def page_of(reason: str, docs: str) -> str:
    """Return the address of a reason's page on the site `docs`; "" without a site or a reason."""
    return f"{docs.rstrip('/')}/reasons/{quote(reason, safe='')}/" if docs and reason else ""


def link_to(reason: str, docs: str) -> str:
    """Return the end of a message that has the address of its reason's page, or ""."""
    return f" ({page})" if (page := page_of(reason, docs)) else ""


@dataclass(frozen=True, slots=True)
class Decision:
    """All that follows from one look at one object.

    `conditions` and `fields` (of `.status`) hold if no task fails; those fields are not written
    otherwise. `sums_up`: Ready is summed up with them; of some kinds that is up to others. `again`
    is when to look again though nothing happens; None: only at the next event.
    """

    tasks: tuple[Task, ...] = ()
    conditions: tuple[Condition, ...] = ()
    fields: Mapping[str, JSON] = field(default_factory=dict)
    notes: tuple[Note, ...] = ()
    again: timedelta | None = None
    sums_up: bool = True

    @property
    def steps(self) -> tuple[Step, ...]:
        return tuple(step for task in self.tasks for step in task.steps)

    @property
    def deletes(self) -> bool:
        return any(isinstance(step, Delete) for step in self.steps)

    @staticmethod
    def merge(decisions: Iterable["Decision"]) -> "Decision":
        """Return decisions about different sides of one object as one; all conditions stay."""
        every = tuple(decisions)
        return Decision(
            tasks=tuple(task for each in every for task in each.tasks),
            conditions=tuple(condition for each in every for condition in each.conditions),
            fields={name: value for each in every for name, value in each.fields.items()},
            notes=tuple(note for each in every for note in each.notes),
            again=min((each.again for each in every if each.again is not None), default=None),
            sums_up=all(each.sums_up for each in every),
        )


NOTHING: Final = Decision()


def writes(*steps: Step | None, failure: Cause | None = None) -> Decision:
    """Return the decision to do these steps as one task; NOTHING without any."""
    there = tuple(step for step in steps if step is not None)
    return Decision(tasks=(Task(there, failure),)) if there else NOTHING


def writes_each(steps: Iterable[Step | None], failure: Cause | None = None) -> Decision:
    """Return the decision to do each of these steps, whatever becomes of the others."""
    return Decision(tasks=tuple(Task((step,), failure) for step in steps if step is not None))


def preconditions_of(live: Manifest) -> dict[str, JSON]:
    """Return the metadata by which a patch applies to exactly the decided object."""
    return {"uid": m.uid_of(live), "resourceVersion": m.resource_version_of(live)}


def deletion(cluster: str, kind: Kind, live: Manifest) -> Delete:
    """Return the delete of exactly the object that was looked at."""
    return Delete(m.ref_of(cluster, kind, live), m.uid_of(live), m.resource_version_of(live))


def modification(cluster: str, kind: Kind, live: Manifest, /, **parts: JSON) -> Patch:
    """Return the merge patch of exactly the object that was looked at.

    `parts` are those of the object; `metadata` among them gets the preconditions.
    """
    metadata = {**m.get_map(parts, "metadata"), **preconditions_of(live)}
    return Patch(m.ref_of(cluster, kind, live), {**parts, "metadata": metadata})


def finalized(cluster: str, kind: Kind, live: Manifest, finalizer: str) -> Patch | None:
    """Return the merge patch that puts a finalizer on an object, unless it has it."""
    finalizers = m.finalizers_of(live)
    if finalizer in finalizers:
        return None
    return modification(cluster, kind, live, metadata={"finalizers": [*finalizers, finalizer]})


def unfinalized(cluster: str, kind: Kind, live: Manifest, finalizer: str) -> Patch | None:
    """Return the merge patch that takes a finalizer off an object, if it has it."""
    finalizers = m.finalizers_of(live)
    if finalizer not in finalizers:
        return None
    rest = [each for each in finalizers if each != finalizer]
    return modification(cluster, kind, live, metadata={"finalizers": rest})


def status_patch(
    live: Manifest,
    ref: Ref,
    decision: Decision,
    *,
    failed: Sequence[tuple[Cause, str]],
    now: datetime,
    docs: str = "",
) -> Patch | None:
    """Return the write of `.status`, or None where all of it is there already.

    Conditions that the decision does not name stay. Others link to the site `docs`.
    """
    present = conditions.of(live)
    causes = {cause.type: conditions.false(cause, message) for cause, message in failed}
    decided = {each.type: each for each in decision.conditions} | causes
    after = present
    for condition in decided.values():
        with_page = replace(condition, page=page_of(condition.reason, docs))
        after = conditions.set_condition(after, with_page, now=now)
    if decided and decision.sums_up:
        after = conditions.summarize(after, now=now)
    status: dict[str, JSON] = dict(decision.fields)
    if after != present:
        status["conditions"] = conditions.dump(after)
    if m.covers(m.get_map(live, "status"), status):
        return None
    body: Manifest = {"metadata": preconditions_of(live), "status": status}
    return Patch(ref, body, subresource="status")


# Differences of JSON objects, as merge patches (RFC 7386) and field by field (RFC 6902).

VERSION_PATH: Final = "/metadata/resourceVersion"
_ARRAYS: Final = (list, tuple)


def merge_diff(before: Manifest, after: Manifest) -> dict[str, JSON]:
    """Return the smallest merge patch from `before` to `after`, {} if they agree.

    A null says what absence says, at any depth: a merge patch cannot tell them apart.
    """
    patch: dict[str, JSON] = {}
    for key, value in after.items():
        old = before.get(key)
        if type(value) is str:  # nearly all, as in a Secret's data
            if old != value:
                patch[key] = value
        elif isinstance(value, dict) and isinstance(old, dict):
            if inner := merge_diff(old, value):
                patch[key] = inner
        elif value is not None:
            wanted = _without_nulls(value)
            if not are_equal(_without_nulls(old), wanted):
                patch[key] = wanted
    for key, old in before.items():
        if old is not None and after.get(key) is None:
            patch[key] = None
    return patch


def changes(before: Manifest, after: Manifest, *above: str) -> list[Manifest]:
    """Return the operations of a JSON patch for the differences; nulls are values to it.

    Of an object at the top, such as a status, each field that differs is one; `above` leads there.
    """
    gone = before.keys() - after.keys()
    found: list[Manifest] = [{"op": "remove", "path": pointer(*above, key)} for key in gone]
    for key, value in after.items():
        old = before.get(key)
        if not above and isinstance(value, dict) and isinstance(old, dict):
            found += changes(old, value, key)
        elif key not in before or not are_equal(old, value):
            found.append({"op": "add", "path": pointer(*above, key), "value": value})
    return found


def are_equal(one: JSON, other: JSON) -> bool:
    """Return whether two values are the same in JSON, where 1 and true are not."""
    return one == other and not _mixes_bools(one, other)


def pointer(*steps: str) -> str:
    """Return the JSON pointer (RFC 6901) of a path."""
    return "".join(f"/{step.replace('~', '~0').replace('/', '~1')}" for step in steps)


def unchanged(live: Manifest) -> dict[str, JSON]:
    """Return the operation that fails where an object is no longer as it was read."""
    return {"op": "test", "path": VERSION_PATH, "value": m.resource_version_of(live)}


def _without_nulls(value: JSON) -> JSON:
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, _ARRAYS) else value


def _mixes_bools(one: JSON, other: JSON) -> bool:
    """Return whether two values that are equal to Python differ in JSON."""
    if isinstance(one, dict) and isinstance(other, dict):
        return any(_mixes_bools(value, other.get(key)) for key, value in one.items())
    if isinstance(one, _ARRAYS) and isinstance(other, _ARRAYS):
        return any(map(_mixes_bools, one, other))
    return isinstance(one, bool) != isinstance(other, bool)


@dataclass(frozen=True, slots=True, order=True)
class FieldChange:
    """A field that differs: a JSON pointer (RFC 6901), and the value there.

    Values of Secrets are digests. None = absent.
    """

    path: str
    before: JSON = field(compare=False)
    after: JSON = field(compare=False)


def field_changes(before: Manifest, after: Manifest) -> tuple[FieldChange, ...]:
    """Return the changes that lead from `before` to `after`, by path."""
    import jsonpatch  # takes a tenth of a second, and the agents never need it

    changes: dict[str, FieldChange] = {}
    for operation in jsonpatch.make_patch(before, after):
        for path in {operation["path"], operation.get("from", operation["path"])}:
            changes[path] = FieldChange(path, _at(before, path), _at(after, path))
    return tuple(changes[path] for path in sorted(changes))


def _at(document: Manifest, path: str) -> JSON:
    import jsonpointer

    try:
        value: JSON = jsonpointer.resolve_pointer(document, path, None)
    except jsonpointer.JsonPointerException:
        return None  # below a value of another shape, or after the end of a list ("-")
    return value
