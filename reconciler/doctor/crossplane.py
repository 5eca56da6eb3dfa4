"""Problems of an upgrade of Crossplane from 1.20 to 2.x, which deletes composed objects. Pure.

2.x runs pipelines alone. Its CRDs prune `spec.resources` of a composition, so a composition in
mode Resources composes nothing there, and Crossplane deletes what it had composed: databases, too.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final

from reconciler.core.manifest import Manifest, get, get_map, get_text, name_of
from reconciler.core.refs import (
    COMPOSITE_DEFINITION,
    COMPOSITION,
    COMPOSITION_REVISION,
    Kind,
)
from reconciler.doctor.diagnosis import Check, Finding, Level

KINDS: Final = (COMPOSITION, COMPOSITION_REVISION, COMPOSITE_DEFINITION)
_SECOND: Final = "v2"  # served by 2.x alone, for definitions
_COMPOSITE: Final = ("spec", "compositeTypeRef")
_REVISION_REFS: Final = (  # of 1.20, and of 2.x
    ("spec", "compositionRevisionRef", "name"),
    ("spec", "crossplane", "compositionRevisionRef", "name"),
)
_BOOK: Final = 'klutchctl/INSTALL.md, "From Crossplane 1.20 to 2.x"'
_NAMED: Final = 10


def is_second(versions: Collection[str]) -> bool:
    """Tell 2.x from 1.x by the versions that Crossplane's API group is served in."""
    return _SECOND in versions


def without_pipeline(found: Iterable[Manifest]) -> Sequence[Manifest]:
    """Return the compositions, or revisions, that compose nothing on 2.x."""
    return [one for one in found if not get(one, "spec", "pipeline")]


def composites(definitions: Iterable[Manifest], revisions: Iterable[Manifest]) -> Iterator[Kind]:
    """Yield each kind of composite resource that these revisions compose for."""
    wanted = {
        (get_text(one, *_COMPOSITE, "apiVersion"), get_text(one, *_COMPOSITE, "kind"))
        for one in revisions
    }
    for definition in definitions:
        group = get_text(definition, "spec", "group")
        names = get_map(definition, "spec", "names")
        for version, kind in sorted(wanted):
            if version.startswith(f"{group}/") and kind == get_text(names, "kind"):
                namespaced = get_text(definition, "spec", "scope") == "Namespaced"
                plural = get_text(names, "plural")
                yield Kind(group, version.removeprefix(f"{group}/"), kind, plural, namespaced)


def used(revisions: Iterable[Manifest], found: Iterable[Manifest]) -> Sequence[Manifest]:
    """Return the revisions that these composite resources name."""
    names = {get_text(one, *path) for one in found for path in _REVISION_REFS}
    return [one for one in revisions if name_of(one) in names]


def judged(second: bool, compositions: Iterable[Manifest], used: Iterable[Manifest]) -> Finding:
    """Judge an installation by its compositions, and the revisions that are in use."""
    bad = [
        f"{kind} {name_of(one)}"
        for kind, found in ((COMPOSITION, compositions), (COMPOSITION_REVISION, used))
        for one in without_pipeline(found)
    ]
    line = "2.x" if second else "1.x"
    if not bad:
        said = f"Crossplane {line}: every composition in use has a pipeline"
        return Finding(Check.CROSSPLANE, Level.OK, said)
    if second:
        message = (
            f"Crossplane 2.x runs pipelines alone, and these have none: {_listed(bad)}. They "
            "compose nothing, and what they had composed is deleted"
        )
        first = "Scale Crossplane to 0 now, restore what is lost, and convert them"
        return Finding(Check.CROSSPLANE, Level.PROBLEM, message, f"{first}: {_BOOK}")
    message = (
        "an upgrade of Crossplane to 2.x would delete all that these composed, databases too: "
        f"{_listed(bad)}. They are in mode Resources, which 2.x does not have"
    )
    return Finding(
        Check.CROSSPLANE, Level.PROBLEM, message, f"Convert them before any upgrade: {_BOOK}"
    )


def perhaps_used(revisions: Sequence[Manifest], kinds: Iterable[Kind]) -> Finding:
    """Warn of revisions without a pipeline, where the kinds that may use them were not read."""
    names = [name_of(one) for one in revisions]
    resources = ", ".join(kind.resource for kind in kinds)
    message = (
        f"composite resources may still use these revisions, which have no pipeline: "
        f"{_listed(names)}; {resources} could not be read. 2.x deletes what such a one composed"
    )
    remedy = f"Allow to list {resources}, or look at their compositionRevisionRef: {_BOOK}"
    return Finding(Check.CROSSPLANE, Level.WARNING, message, remedy)


def not_looked_at() -> Finding:
    """Warn of an installation whose compositions may not be read."""
    resources = ", ".join(kind.plural for kind in KINDS)
    return Finding(
        Check.CROSSPLANE,
        Level.WARNING,
        f"Crossplane was not looked at: {resources} of {COMPOSITION.group} may not be listed",
        f"Apply the printed rights again, or look before an upgrade to 2.x as {_BOOK} says",
    )


def is_there(crds: Collection[str]) -> bool:
    """Tell by the names of its CRDs whether a cluster has Crossplane."""
    return COMPOSITION.resource in crds


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
