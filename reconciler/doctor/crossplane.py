"""Finds problems of Crossplane on a control plane, around an upgrade from 1.20 to 2.x. Pure.

2.x runs pipelines alone. Its CRDs prune `spec.resources` of a composition, so a composition in
mode Resources composes nothing there, and Crossplane deletes what it had composed: databases, too.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from reconciler.core.documents import first_of
from reconciler.core.manifest import (
    Manifest,
    get,
    get_list,
    get_map,
    get_maps,
    get_text,
    is_deleting,
    labels_of,
    name_of,
)
from reconciler.core.refs import (
    COMPOSITE_DEFINITION,
    COMPOSITION,
    COMPOSITION_REVISION,
    FUNCTION_REVISION,
    GroupResource,
    Kind,
)
from reconciler.doctor.diagnosis import Check, Finding, Level, ok, problem, warning

# Real databases came through on these; the sandbox runs them.
TESTED: Final = ("1.20.5", "2.4.0")
_LEFT: Final = ("controllerconfigs.pkg.crossplane.io", "storeconfigs.secrets.crossplane.io")
_SECOND: Final = "v2"  # served by 2.x alone, for definitions
_COMPOSITE: Final = ("spec", "compositeTypeRef")
_REVISION_REFS: Final = (  # of 1.20, and of 2.x
    ("spec", "compositionRevisionRef", "name"),
    ("spec", "crossplane", "compositionRevisionRef", "name"),
)
_BOOK: Final = 'the page "Upgrade Crossplane from 1.20 to 2.x"'
_MOVE: Final = 'the page "From claims to composite resources"'
_listed: Final = partial(first_of, most=10)
_SERVICE: Final = ("spec", "APIServiceSelector")
_DEFAULTS: Final = ("defaultCompositionRef", "enforcedCompositionRef")
_problem: Final = partial(problem, Check.CROSSPLANE)
_warning: Final = partial(warning, Check.CROSSPLANE)


@dataclass(frozen=True, slots=True)
class Installation:
    """The objects of one Crossplane, and the export templates beside it.

    `used` are the revisions that composite resources name, of those without a pipeline. `version`
    is "" where no Deployment shows it, `crds` are names. Of `unread` kinds, no object is known.
    """

    second: bool
    version: str
    crds: Collection[str]
    compositions: Sequence[Manifest]
    used: Sequence[Manifest]
    definitions: Sequence[Manifest]
    functions: Sequence[Manifest]
    templates: Sequence[Manifest]
    unread: Collection[Kind] = ()

    @property
    def name(self) -> str:
        """Crossplane with its version, as far as it is known."""
        return f"Crossplane {self.version or ('2.x' if self.second else '1.x')}"

    @property
    def bound(self) -> Sequence[Manifest]:
        """The definitions of kinds that templates offer."""
        offered = {
            (get_text(one, *_SERVICE, "group"), get_text(one, *_SERVICE, "resource"))
            for one in self.templates
        }
        return [
            one
            for one in self.definitions
            if any((kind.group, kind.plural) in offered for kind in _defined(one))
        ]


def findings(found: Installation) -> Iterator[Finding]:
    """Yield the findings of an installation, and the one that all is well without a problem."""
    listed = [
        *pipelines(found),
        *_functions(found),
        *_definitions(found),
        *_versions(found),
        *_old_kinds(found),
        *_wide_claims(found),
        *_unread(found.unread),
    ]
    yield from listed
    if not found.unread and all(one.level is not Level.PROBLEM for one in listed):
        namespaced = sum(map(_is_namespaced, found.bound))
        message = (
            f"{found.name}: every composition in use has a pipeline, every function answers; bound "
            f"kinds: {len(found.bound) - namespaced} by claims, {namespaced} by composite resources"
        )
        yield ok(Check.CROSSPLANE, message)


def is_second(versions: Collection[str]) -> bool:
    """Distinguish 2.x from 1.x by the served versions of Crossplane's API group."""
    return _SECOND in versions


def without_pipeline(found: Iterable[Manifest]) -> Sequence[Manifest]:
    """Return the compositions, or revisions, that compose nothing on 2.x."""
    return [one for one in found if not get(one, "spec", "pipeline")]


def composites(definitions: Iterable[Manifest], revisions: Iterable[Manifest]) -> Iterator[Kind]:
    wanted = {
        (get_text(one, *_COMPOSITE, "apiVersion"), get_text(one, *_COMPOSITE, "kind"))
        for one in revisions
    }
    for definition in definitions:
        group = get_text(definition, "spec", "group")
        names = get_map(definition, "spec", "names")
        for version, kind in sorted(wanted):
            if version.startswith(f"{group}/") and kind == get_text(names, "kind"):
                version, plural = version.removeprefix(f"{group}/"), get_text(names, "plural")
                yield Kind(group, version, kind, plural, _is_namespaced(definition))


def used(revisions: Iterable[Manifest], found: Iterable[Manifest]) -> Sequence[Manifest]:
    """Return the revisions that these composite resources name."""
    names = {get_text(one, *path) for one in found for path in _REVISION_REFS}
    return [one for one in revisions if name_of(one) in names]


def pipelines(found: Installation) -> Iterator[Finding]:
    """Yield the problem that compositions, or revisions in use, have no pipeline."""
    kinds = ((COMPOSITION, found.compositions), (COMPOSITION_REVISION, found.used))
    bad = [f"{kind} {name_of(one)}" for kind, some in kinds for one in without_pipeline(some)]
    if bad and found.second:
        yield _problem(
            f"Crossplane 2.x runs pipelines alone, and these have none: {_listed(bad)}. They "
            "compose nothing, and what they had composed is deleted",
            f"Scale Crossplane to 0 now, restore what is lost, and convert them: {_BOOK}",
        )
    elif bad:
        yield _problem(
            "an upgrade of Crossplane to 2.x would delete all that these composed, databases too: "
            f"{_listed(bad)}. They are in mode Resources, which 2.x does not have",
            f"Convert them before any upgrade: {_BOOK}",
        )


def _functions(found: Installation) -> Iterator[Finding]:
    """Name the functions that nobody can call, and the kinds that wait for them."""
    callable_ = {
        labels_of(one).get("pkg.crossplane.io/package", "")
        for one in found.functions
        if get_text(one, "spec", "desiredState") == "Active" and get_text(one, "status", "endpoint")
    }
    waiting: dict[str, set[str]] = {}
    for one in () if FUNCTION_REVISION in found.unread else found.compositions:
        for step in get_maps(one, "spec", "pipeline"):
            function = get_text(step, "functionRef", "name")
            if function and function not in callable_:
                waiting.setdefault(function, set()).add(get_text(one, *_COMPOSITE, "kind"))
    for function, kinds in sorted(waiting.items()):
        yield _problem(
            f"function {function} has no active revision with an endpoint: composite resources of "
            f"{_listed(sorted(kinds))} stay as they are",
            f"Install it, and wait until Function {function} is Healthy",
        )


def _definitions(found: Installation) -> Iterator[Finding]:
    wanted = Counter(kind.name for one in found.definitions for kind in _defined(one))
    if twice := sorted(name for name, number in wanted.items() if number > 1):
        yield _problem(
            f"two definitions want one CRD: {_listed(twice)}. The second waits until the first is "
            "gone, and the objects go with the first",
            f"Delete none of them before you have read {_MOVE}",
        )
    for one in filter(is_deleting, found.bound):
        yield _problem(
            f"{COMPOSITE_DEFINITION} {name_of(one)} is being deleted, and with it all objects of "
            f"{', '.join(kind.name for kind in _defined(one))} that app clusters have",
            f"If nobody meant to, scale Crossplane to 0 and read {_MOVE}",
        )
    unsure = [
        name_of(one)
        for one in found.bound
        if _is_namespaced(one) and not any(get_map(one, "spec", key) for key in _DEFAULTS)
    ]
    if unsure:
        yield _warning(
            f"without defaultCompositionRef Crossplane may take any composition: {_listed(unsure)}",
            "Set it in these definitions",
        )


def _versions(found: Installation) -> Iterator[Finding]:
    tested = f"klutchctl is tested with {' and '.join(TESTED)}"
    if not found.second:
        old = found.version and _numbers(found.version) < _numbers(TESTED[0])
        below = f"{found.name} is older than {TESTED[0]}, and misses changes of what it composed; "
        yield _warning(
            f"{below if old else ''}the support of Crossplane 1.20 ends with 2.5; {tested}",
            f"Upgrade as {_BOOK} describes",
        )
        return
    if found.version and found.version not in TESTED:
        yield _warning(f"{found.name} is not among the tested versions: {tested}", "Try it first")
    if left := sorted(set(found.crds) & set(_LEFT)):
        yield _warning(
            f"CRDs of 1.x are left, which 2.x does not read: {', '.join(left)}", "Delete them"
        )


def _numbers(version: str) -> list[int]:
    return [int(part) for part in version.split("-")[0].split(".") if part.isdecimal()]


def _old_kinds(found: Installation) -> Iterator[Finding]:
    old = [name_of(one) for one in found.bound if not _is_namespaced(one)]
    if found.second and old:
        yield _warning(
            f"claims are deprecated in Crossplane 2.x, and these kinds have them: {_listed(old)}",
            f"They work in 2.4; plan the move: {_MOVE}",
        )


def _wide_claims(found: Installation) -> Iterator[Finding]:
    """Warn where a claim on all Secrets meets a kind that composes Secrets in the namespace.

    What such a kind composes lies in the service namespace, beside what a developer asked for, and
    a claim of any binding of the space opens it.
    """
    beside = [name_of(one) for one in found.bound if _is_namespaced(one)]
    wide = [
        name_of(one)
        for one in found.templates
        if any(map(_is_on_all_secrets, get_maps(one, "spec", "permissionClaims")))
    ]
    if beside and wide:
        yield _warning(
            f"templates {_listed(wide)} claim all Secrets, and {_listed(beside)} compose theirs in "
            "the same namespaces: credentials that are not meant for app clusters come down, too",
            "Narrow these claims with names or labelSelectors",
        )


def _is_on_all_secrets(claim: Manifest) -> bool:
    narrow = ("names", "labelSelectors")
    return (get_text(claim, "group"), get_text(claim, "resource")) == ("", "secrets") and not any(
        get_list(claim, "selector", key) for key in narrow
    )


def _defined(definition: Manifest) -> Iterator[GroupResource]:
    for key in ("names", "claimNames"):
        if plural := get_text(definition, "spec", key, "plural"):
            yield GroupResource(get_text(definition, "spec", "group"), plural)


def _is_namespaced(definition: Manifest) -> bool:
    return get_text(definition, "spec", "scope") == "Namespaced"


def _unread(kinds: Collection[Kind]) -> Iterator[Finding]:
    """Warn of kinds that may not be listed: a revision without a pipeline may be among them."""
    if kinds:
        resources = ", ".join(kind.resource for kind in kinds)
        yield _warning(
            f"Crossplane was not looked at as a whole: {resources} may not be listed",
            "Allow it, as the printed rights do for Crossplane's own kinds. In an upgrade to 2.x a "
            f"composite resource on a revision without a pipeline loses what it composed: {_BOOK}",
        )
