"""Builds rows and sentences of a plan, without layout; the text formats lay them out.

And what a pull request changes, as lines that are the same in all of these. Every string that
leaves this module is on one line and fit for a terminal.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest
from typing import Final

from klutchctl.render.terminal import in_order, plural, ranges, visible
from reconciler.core import manifest
from reconciler.core.decision import FieldChange, pointer
from reconciler.core.documents import first_of
from reconciler.core.errors import Origin
from reconciler.core.live import plane_unseen
from reconciler.core.manifest import JSON
from reconciler.planning.changes import Action, Change, Plan, Step, UnseenCluster
from reconciler.reports import alike
from reconciler.reports.pr_diff import Against, Edit, Effect

SYMBOLS: Final[Mapping[Action, str]] = {
    Action.CREATE: "+",
    Action.UPDATE: "~",
    Action.REPLACE: "-/+",
    Action.ADOPT: "=",
    Action.RELEASE: "<",
    Action.DELETE: "-",
    Action.NOOP: " ",
    Action.BLOCKED: "!",
    Action.UNKNOWN: "?",
}
ID_SHOWN: Final = 7
DETAIL_INDENT: Final = " " * 15
# Longer descriptions push their place to the right instead of moving everyone's.
WIDEST: Final = 60

_EDIT_SYMBOLS: Final[Mapping[Effect, str]] = {
    Effect.DELETE: "-",
    Effect.REPLACE: "-/+",
    Effect.WIDEN: "!",
    Effect.RIGHTS: "!",
    Effect.BLOCK: "!",
    Effect.RELEASE: "<",
    Effect.REMOVE: "-",
    Effect.CHANGE: "~",
    Effect.ADD: "+",
}

_ALWAYS_COUNTED: Final = frozenset(
    {Action.CREATE, Action.UPDATE, Action.REPLACE, Action.RELEASE, Action.DELETE, Action.NOOP}
)
# Their reason says what they come to, not the object that stands for the unit.
_EXPLAINED_BY_REASON: Final = frozenset(
    {Action.REPLACE, Action.RELEASE, Action.BLOCKED, Action.UNKNOWN}
)
_COMMIT_SHOWN: Final = 7
_GAP: Final = "   "


@dataclass(frozen=True, slots=True)
class Row:
    """A line of a plan; `details` are its differences and steps."""

    action: Action
    subject: str
    text: str
    origin: str
    details: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Section:
    """The changes in an app cluster, or in several that are alike: `rows` are of the first.

    `counts` are the words for what happens in each of them.
    """

    clusters: tuple[str, ...]
    title: str
    rows: tuple[Row, ...]
    counts: str

    @property
    def example(self) -> str:
        """The sentence above the rows, or "" where they are all there is."""
        several = len(self.clusters) > 1
        return f"{self.counts} in each; this is {visible(self.clusters[0])}" if several else ""


def sections(plan: Plan, *, most: int | None = None, steps: bool = False) -> tuple[Section, ...]:
    """Return the clusters in which something would happen, in the order of the plan.

    A title names `most` ranges of clusters that are alike, and counts the others. Each row has its
    `steps` if asked for.
    """
    known = in_order({*plan.sections, *(change.cluster for change in plan.changes)})
    return tuple(
        Section(
            some.clusters,
            _title(plan, ranges(some.clusters, known, most=most), some),
            tuple(row(change, steps=steps) for change in some.changes),
            counted(change.action for change in some.changes),
        )
        for some in alike.groups(plan)
    )


def _title(plan: Plan, named: str, some: alike.Alike) -> str:
    control_plane = plan.sections.get(some.clusters[0])
    behind = f"  (control plane {visible(control_plane)})" if control_plane else ""
    if len(some.clusters) == 1:
        return f"Cluster {named}{behind}"
    return f"The same in {len(some.clusters)} clusters: {named}{behind}"


def counted(actions: Iterable[Action]) -> str:
    """Return the number of each action, such as `2 create, 1 delete`."""
    counts = Counter(actions)
    return ", ".join(f"{counts[action]} {action.value}" for action in Action if counts[action])


def row(change: Change, *, steps: bool = False) -> Row:
    return Row(
        action=change.action,
        subject=visible(change.subject),
        text=visible(_described(change) + _noted(change)),
        origin=place(change.origin),
        details=(
            *chain(*map(differences, change.fields)),
            *(_steps(change.steps) if steps else ()),
        ),
    )


def _described(change: Change) -> str:
    thing = f"{change.ref.kind.kind} {change.ref.name}"
    if change.action is Action.CREATE or not change.reason:
        return thing
    if change.action in _EXPLAINED_BY_REASON and change.unit is not None:
        named = change.unit.resource in change.reason
        return change.reason if named else f"{change.unit.name}: {change.reason}"
    # Where the place itself is in question, no object has a name, and the reason says it all.
    return f"{thing}: {change.reason}" if change.ref.name else change.reason


def _noted(change: Change) -> str:
    notes = (("waits for ", change.waits_for), ("held back: ", change.held))
    return "".join(f"  ({note}{', '.join(names)})" for note, names in notes if names)


def place(origin: Origin | None) -> str:
    """Return file and line; the column helps only an editor."""
    if origin is None:
        return ""
    return visible(f"{origin.path}:{origin.line}" if origin.line else origin.path)


def _steps(steps: Sequence[Step]) -> Iterable[str]:
    for number, step in enumerate(steps, start=1):
        note = f" ({step.note})" if step.note else ""
        yield visible(f"{number}. {step.verb} {step.ref.object} in {step.ref.cluster}{note}")


def widened(plan: Plan) -> tuple[tuple[str, str], ...]:
    """Return (binding, sentence) of each widened claim; clusters where it is alike share one."""
    clusters: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for claim in plan.widened:
        sentence = f"{claim.claim}: {claim.before} -> {claim.after}{_GAP}{claim.unit.name}"
        alike = (claim.binding, sentence, place(claim.origin))
        clusters[alike].append(claim.unit.cluster)
    return tuple(
        (visible(binding), visible(f"{sentence} in {first_of(names)}{_GAP}{origin}".rstrip()))
        for (binding, sentence, origin), names in clusters.items()
    )


def tripped(plan: Plan) -> tuple[tuple[str, str], ...]:
    """Return (guard, sentence) of each guard that tripped; clusters with the same share one.

    What the line of a blocked cluster says is not said again.
    """
    shown = {one.reason for one in plan.changes if one.action is Action.BLOCKED}
    clusters: dict[tuple[str, str], list[str]] = defaultdict(list)
    for one in plan.held:
        if one.message not in shown:
            clusters[one.guard, one.message] += one.clusters
    return tuple(
        (visible(guard), visible(message + (f"{_GAP}in {first_of(names)}" if names else "")))
        for (guard, message), names in clusters.items()
    )


def unread(
    unseen: Sequence[UnseenCluster], known: Iterable[str] = ()
) -> tuple[tuple[str, str], ...]:
    """Return (cluster, reason and remedy) of each cluster that could not be read.

    Of those behind a control plane that is among them, its own line says why. With all that are
    `known`, those share a line that say the same.
    """
    planes = {
        plane_unseen(plane, one.reason): (plane_unseen(plane), "")
        for one in unseen
        if (plane := one.name.partition("/")[2])  # `control_plane_ref_name`
    }
    names: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for one in unseen:
        texts = planes.get(one.reason, (one.reason, one.remedy))
        names[*texts, *(() if known else (one.name,))].append(one.name)
    among = in_order({*known, *(one.name for one in unseen)})
    return tuple(
        (ranges(some, among), visible(". ".join(filter(None, texts[:2]))))
        for texts, some in names.items()
    )


def notes(plan: Plan) -> tuple[str, ...]:
    """Return the warnings and notes of the plan; those that differ in their cluster share one."""
    clusters: dict[str, list[str]] = defaultdict(list)
    for warning in plan.warnings:
        name, slash, rest = warning.partition("/")
        of_cluster = bool(slash) and name in plan.sections
        clusters[f"/{rest}" if of_cluster else warning] += [name] if of_cluster else []
    known = in_order(plan.sections)
    return tuple(
        visible(note) if not names else f"{ranges(names, known)}{visible(note)}"
        for note, names in clusters.items()
    )


def heading(plan: Plan) -> str:
    """Return fleet and revision, such as `Fleet acme @ 4c1e9d2`."""
    at = f" @ {short_commit(plan.revision)}" if plan.revision else ""
    return f"Fleet {visible(plan.fleet)}{at}"


def short_commit(revision: str) -> str:
    """Return the first characters of a commit; any other text stays."""
    commit, plus, rest = revision.partition("+")
    is_commit = len(commit) in (40, 64) and set(commit) <= set("0123456789abcdef")
    return visible(f"{commit[:_COMMIT_SHOWN] if is_commit else commit}{plus}{rest}")


def reading(plan: Plan, seconds: float | None) -> tuple[str, str]:
    """Return the read clusters, and the unread ones ("" for none). `seconds`: how long it took."""
    total = max(plan.clusters_total, len(plan.unseen))
    time = "" if seconds is None else f" in {seconds:.1f} s"
    read = f"Read {total - len(plan.unseen)} of {plural(total, 'cluster')}{time}"
    if not plan.unseen:
        return read, ""
    names = [visible(one.name) for one in plan.unseen]
    why = f" ({visible(plan.unseen[0].reason)})" if len(names) == 1 else ""
    return read, f"{len(names)} unreachable: {first_of(names)}{why}"


def summary(plan: Plan) -> str:
    """Return the counts in words, such as `2 create, 3 release (3 held), ..., 42 unchanged`."""
    counts = Counter(change.action for change in plan.changes)
    held = Counter(change.action for change in plan.changes if change.held)
    words = [
        f"{counts[action]} {'unchanged' if action is Action.NOOP else action.value}"
        + (f" ({held[action]} held)" if held[action] else "")
        for action in SYMBOLS
        if counts[action] or action in _ALWAYS_COUNTED
    ]
    if plan.unseen:
        words.append(f"{plural(len(plan.unseen), 'cluster')} unknown")
    return ", ".join(words)


def edits_title(against: Against) -> str:
    """Return the heading, such as `Changed against main (4c1e9d2)`."""
    commit = short_commit(against.revision)
    named = visible(against.ref)
    return f"Changed against {named}" + (f" ({commit})" if commit not in ("", named) else "")


def edit_lines(against: Against) -> list[str]:
    """Return a line per edit, gravest first, with its differences below it."""
    if not against.edits:
        return ["    nothing"]
    names = [visible(edit.name) or "-" for edit in against.edits]
    texts = [_edited(edit) for edit in against.edits]
    wide = max(map(len, names))
    most = max((len(text) for text in texts if len(text) <= WIDEST), default=0)
    shown = []
    for edit, name, text in zip(against.edits, names, texts, strict=True):
        head = f"{_EDIT_SYMBOLS[edit.effect]:>3} {edit.effect.value}"
        line = f"{head:<12} {name:<{wide}}{_GAP}{text:<{most}}{_GAP}{place(edit.origin)}"
        shown.append(line.rstrip())
        shown += (
            f"{DETAIL_INDENT}{line}"
            for field in edit.fields
            for line in differences(field, whole=True)
        )
    return shown


def _edited(edit: Edit) -> str:
    if not edit.resource:
        return edit.kind
    return visible(f"{edit.resource} in {first_of(edit.clusters)}")


_VALUE_SHOWN: Final = 120
_WHOLE_SHOWN: Final = 4_000  # more than any claim has room for; a file may hold a megabyte
_INSIDE_SHOWN: Final = 20
_CLAIMS: Final = "/spec/permissionClaims"
# Of a claim that does not name them: all names, all namespaces, and true.
_NOT_EMPTY: Final = frozenset({"names", "namespaces", "recreateWhenConsumerSideDeleted"})


def differences(field: FieldChange, *, whole: bool = False) -> Iterator[str]:
    """Yield a field that differs, such as `/spec/x: 1 -> 2`; long ones by the fields inside.

    Permission claims are shown whole, as all is where `whole`: they have to be judged. Of others,
    and of what is in a cluster, long values are cut, and counted.
    """
    claim, reaches = field.path.removeprefix("/claims/"), f"{field.before} {field.after}"
    if claim != field.path and " of " in claim and " rejected" not in reaches:
        yield visible(_claimed(claim, field.before, field.after))
        return
    judged = whole or field.path.startswith(_CLAIMS)
    found = list(_inside(field))
    shown = found if judged and field.after is not None else found[:_INSIDE_SHOWN]
    for one in shown:
        before = _value(one.before, whole=whole)
        yield f"{visible(one.path)}: {before} -> {_value(one.after, whole=judged)}"
    if len(found) > len(shown):
        yield f"{visible(field.path)}: {len(found) - len(shown)} more fields; -o json has all"


def _claimed(claim: str, before: JSON, after: JSON) -> str:
    """Return the new reach of an accepted claim of a Binding, if a service offers it."""
    kind, _, owner = claim.rpartition(" of ")
    kind = {"secrets v1": "Secrets", "configmaps v1": "ConfigMaps"}.get(kind, kind)
    up, down = f"{kind} of the app cluster may go up", f"the provider's {kind} may come down"
    way, reaches = up if owner == "Consumer" else down, []
    for text in map(str, filter(None, (before, after))):
        each = [
            one if "namespaces [" in one else f"{one} in all namespaces".removeprefix("all ")
            for one in text.split("; ")
        ]
        reaches.append("; ".join(each))
    if before is None:
        return f"{way}, {reaches[0]}, if offered"
    return f"{way}: {reaches[0]} -> {reaches[1] if after else 'nothing'}"


def _inside(field: FieldChange) -> Iterator[FieldChange]:
    """Yield a field, or where it is long, the fields inside of it that differ."""
    before, after = field.before, field.after
    if max(len(_text(before)), len(_text(after))) <= _VALUE_SHOWN:
        yield field
    elif _are(Mapping, before, after):
        old, new = manifest.get_map(before), manifest.get_map(after)
        # Of a claim that comes or goes as a whole, what is empty or false says what absence does.
        whole = (before is None or after is None) and field.path.startswith(_CLAIMS)
        for key in sorted(old.keys() | new.keys()):
            one, other = old.get(key), new.get(key)
            if one != other and not (whole and _is_empty({key: other if one is None else one})):
                yield from _inside(FieldChange(f"{field.path}{pointer(key)}", one, other))
    elif _are(list, before, after) and _has_parts(before) | _has_parts(after):
        old_items, new_items = manifest.get_list(before), manifest.get_list(after)
        for index, (one, other) in enumerate(zip_longest(old_items, new_items)):
            if one != other:
                yield from _inside(FieldChange(f"{field.path}/{index}", one, other))
    else:
        yield field


def _are(form: type, before: JSON, after: JSON) -> bool:
    """Return whether values are of this form, or one of them is and the other is absent."""
    return all(one is None or isinstance(one, form) for one in (before, after))


def _is_empty(value: JSON) -> bool:
    if isinstance(value, Mapping):
        return all(key not in _NOT_EMPTY and _is_empty(one) for key, one in value.items())
    return not value and type(value) not in (int, float)


def _has_parts(items: JSON) -> bool:
    return any(isinstance(item, Mapping | list) for item in manifest.get_list(items))


def _text(value: JSON) -> str:
    return "(absent)" if value is None else json.dumps(value, ensure_ascii=False, sort_keys=True)


def _value(value: JSON, *, whole: bool) -> str:
    text = visible(_text(value))
    most = _WHOLE_SHOWN if whole else _VALUE_SHOWN
    return text if len(text) <= most else f"{text[:most]}... ({len(text)} characters)"
