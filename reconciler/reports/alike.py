"""Groups the clusters of a plan with equal changes. Pure.

Equal means: apart from a cluster's name, uid and connection, its binding space and the names that
follow from it, the digests of its Secrets, and the lines of its document. Whole lines are compared,
with all their writes, so an example never stands for a different change.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from reconciler.core import keys, manifest, names
from reconciler.core.decision import pointer
from reconciler.core.manifest import JSON, Manifest
from reconciler.core.refs import NAMESPACE, SECRET
from reconciler.planning.changes import Action, Change, Plan
from reconciler.planning.planfile import whole_line

_MOST_APART: Final = 2  # so many clusters are shown one by one
_DIGEST: Final = re.compile(r"[0-9a-f]{16}|[0-9a-f]{32}")
_NAMED: Final = frozenset({"subject", "action", "unit"})  # is compared as it is
# Where a line stands in the files, and what it found in the cluster.
_ELSEWHERE: Final = frozenset({"origin", "before", "uid"})
_NOTES: Final = (keys.CLUSTER, keys.APP_CLUSTER_UID, keys.ACCESS, keys.IDENTITY)
# Only here a word is what a cluster calls its own: a claim on `secrets` in a cluster that is called
# so is another one than a claim on `configmaps` in a cluster of that name.
_OWN_KEYS: Final = ("cluster", "namespace", "name", *_NOTES)
_OWN_PATHS: Final = frozenset(
    pointer("metadata", place, key) for place in ("labels", "annotations") for key in _NOTES
)


@dataclass(frozen=True, slots=True)
class Alike:
    """Clusters, in the order of the plan, and the lines of the first of them."""

    clusters: tuple[str, ...]
    changes: tuple[Change, ...]


def groups(plan: Plan) -> tuple[Alike, ...]:
    """Return the clusters in which something would happen, those that are alike together."""
    acting = (change for change in plan.changes if change.action is not Action.NOOP)
    changes = manifest.grouped(acting, lambda change: change.cluster)
    found = manifest.grouped(changes, lambda name: _likeness(plan, name, changes[name]))
    sized = [
        some
        for alike in found.values()
        for some in ([alike] if len(alike) > _MOST_APART else [[name] for name in alike])
    ]
    order = {name: index for index, name in enumerate(changes)}
    return tuple(
        Alike(tuple(some), tuple(changes[some[0]]))
        for some in sorted(sized, key=lambda some: order[some[0]])
    )


def _likeness(plan: Plan, cluster: str, lines: Sequence[Change]) -> bytes:
    words = list(_own_words(plan, cluster, lines))
    stated = manifest.canonical([_stated(line, words) for line in lines])
    # Whole strings of JSON: inside of one, a quote has a backslash before it.
    for number, word in enumerate(words):
        if word.startswith(
            names.KUBECONFIG_GENERATE_NAME
        ):  # stands in rules, too, and means nothing else
            stated = stated.replace(manifest.canonical(word), b"%d" % number)
        for key in _OWN_KEYS:
            own = manifest.canonical({key: word})[1:-1]
            stated = stated.replace(own, b'"%s":%d' % (key.encode(), number))
    named: JSON = [
        [line.subject, line.action.value, None if line.unit is None else line.unit.name]
        for line in lines
    ]
    return manifest.canonical([plan.sections.get(cluster, ""), named]) + stated


def _stated(line: Change, words: Sequence[str]) -> Manifest:
    stated = {
        key: value
        for key, value in whole_line(line).items()
        if key not in _NAMED and key not in _ELSEWHERE
    }
    fields: list[JSON] = [
        [
            field.path,
            *(_common(line, field.path, one, words) for one in (field.before, field.after)),
        ]
        for field in line.fields
    ]
    return {**stated, "fields": fields}


def _common(line: Change, path: str, value: JSON, words: Sequence[str]) -> JSON:
    """Return a differing value, without the parts that a cluster has of its own."""
    if path in _OWN_PATHS and value in words:
        return words.index(str(value))
    of_secret = line.ref.kind == SECRET and isinstance(value, str)
    return 0 if of_secret and _DIGEST.fullmatch(str(value)) else value


def _own_words(plan: Plan, cluster: str, lines: Sequence[Change]) -> Iterator[str]:
    """Yield the names that are this cluster's alone, in an order that is the same for all."""
    yield cluster
    spaces = dict.fromkeys(
        space
        for line in lines
        if line.ref.cluster != cluster
        and (space := line.ref.name if line.ref.kind == NAMESPACE else line.ref.namespace)
    )
    yield names.direct_identity(plan.fleet, cluster)
    if not spaces and f"{plan.fleet}{cluster}".isprintable():  # a saved plan may hold any text
        spaces = {names.direct_space(plan.fleet, cluster): None}
    for space in spaces:
        yield space
        yield names.kubeconfig_secret(space)
    for key in (keys.APP_CLUSTER_UID, keys.ACCESS):
        noted = (manifest.annotations_of(line.after or {}).get(key) for line in lines)
        yield from dict.fromkeys(filter(None, noted))
