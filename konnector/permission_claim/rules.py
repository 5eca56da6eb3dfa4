"""Finds the objects that a binding's permission claims select, and their directions.

See protocol-konnector.md E.1 and mapping.md 0 and 7. People and other programs write permission
claims: one with an unreadable part, or with an option that we do not support, selects nothing.
Does not know the objects, and what is done with them.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final, Literal, NamedTuple, TypeAlias, cast

from konnector.claim import copies
from reconciler.core import keys, manifest, names
from reconciler.core.manifest import JSON, Manifest
from reconciler.core.refs import ObjectKey

Owner: TypeAlias = Literal["", "Provider", "Consumer"]

_ANY: Final = "*"
_OWNERS: Final = ("", keys.OWNER_PROVIDER, keys.OWNER_CONSUMER)
_NAME, _NAMESPACE, _TYPE = "metadata.name", "metadata.namespace", "type"
_OBJECTS: Final = ("selector", "read", "create", "onConflict", "update")
# Each of these fields changes an object's owner, or limits its content more than we do.
_REFUSED: Final = (
    ("autoAdopt",),
    ("autoDonate",),
    ("read", "labels"),
    ("read", "annotations"),
    ("update", "fields"),
    ("update", "preserving"),
    ("update", "labels"),
    ("update", "labelsOnConsumerOwnedObjects"),
    ("update", "annotations"),
    ("update", "annotationsOnConsumerOwnedObjects"),
)
# Each of these fields would copy more, or the same in another manner.
_IGNORED: Final = (
    ("read", "labelsOnProviderOwnedObjects"),
    ("read", "overrideAnnotations"),
    ("update", "alwaysRecreate"),
)
_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")  # RFC 1123
_SUBDOMAIN: Final = re.compile(r"([a-z0-9]([-.a-z0-9]*[a-z0-9])?)?")  # or "", the core group
_REQUIRED: Final = (
    "the provider requires it: the service may not work without it. To accept it, set its state to"
    " Accepted in spec.permissionClaims"
)
_QUOTED: Final = 100  # characters of foreign text at most in a sentence


class Term(NamedTuple):
    """A comparison that a field selector makes; `equal` is False for `!=`."""

    field: str
    value: str
    equal: bool


@dataclass(frozen=True, slots=True)
class Rule:
    """An accepted claim. All of names, namespaces, labels and fields must agree.

    `group`, `version` and `resource` (plural) are as the claim writes them: no server was asked
    whether it serves them. `owner` says which way objects may go: the provider's only down, the
    consumer's only up; "" is a claim that does not say. `names` None stands for all; `literal`
    are those that the claim spells out, also beside a `*`. `namespaces` are app namespaces, None
    for all, none at all for objects without a namespace; `literal_namespaces` are as `literal`. An
    object needs all labels of one item of `labels`, and all of `fields`. `binding` is the
    APIServiceBinding's name. `up` and `down` are the labels and annotations that go that way
    beside those that always do.
    """

    group: str
    version: str
    resource: str
    binding: str
    owner: Owner = ""
    names: frozenset[str] | None = None
    literal: frozenset[str] = frozenset()
    namespaces: frozenset[str] | None = None
    literal_namespaces: frozenset[str] = frozenset()
    labels: tuple[frozenset[tuple[str, str]], ...] = ()
    fields: tuple[Term, ...] = ()
    recreate_when_consumer_side_deleted: bool = True
    replace_existing: bool = False
    up: frozenset[str] = frozenset()
    down: frozenset[str] = frozenset()

    @property
    def goes_down(self) -> bool:
        """Whether objects of the provider may come into the app cluster."""
        return self.owner != keys.OWNER_CONSUMER

    @property
    def goes_up(self) -> bool:
        """Whether objects of the app cluster may come to the control plane, if more is said."""
        return self.owner != keys.OWNER_PROVIDER

    def reaches(self, place: ObjectKey) -> bool:
        """Return whether name and app namespace agree, all that is known of an object that is gone.

        `place` is where the object is, or would be, in the app cluster.
        """
        if self.names is not None and place.name not in self.names:
            return False
        if self.namespaces is None:
            return True
        return place.namespace in self.namespaces if place.namespace else not self.namespaces

    def selects(self, place: ObjectKey, live: Manifest, *, partial: bool = False) -> bool:
        """Return whether the object is claimed; `live` is that of either side.

        Of a `partial` object, which is metadata alone, `type` counts as agreeing.
        """
        return (
            self.reaches(place)
            and (
                not self.labels
                or any(one <= manifest.labels_of(live).items() for one in self.labels)
            )
            and all(_is_met(term, place, live, partial) for term in self.fields)
        )


@dataclass(frozen=True, slots=True)
class Claims:
    """The accepted claims of a binding, and a sentence for each claim or part without effect.

    One that the provider requires and that is rejected is such a claim, too (F23).
    """

    rules: tuple[Rule, ...] = ()
    unsupported: tuple[str, ...] = ()


class _Refused(ValueError):
    """Why a claim cannot be followed."""


def carried_by(rules: Iterable[Rule], *, down: bool) -> frozenset[str]:
    """Return the labels and annotations that go along one way beside those that always do."""
    named = [
        rule.down if down else rule.up
        for rule in rules
        if (rule.goes_down if down else rule.goes_up)
    ]
    return frozenset().union(*named)


def rules_of(binding: Manifest, export: Manifest | None = None) -> Claims:
    """Return the rules of an APIServiceBinding's accepted claims. Never raises.

    A claim says the same with the CRD's defaults and without them.
    Which more labels and annotations go along, says each side for what comes to it.
    """
    rules: list[Rule] = []
    unsupported: list[str] = []
    claims = manifest.get_list(binding, "spec", "permissionClaims")
    for number, claim in enumerate(claims, start=1):
        if not isinstance(claim, dict):
            continue
        subject = _subject(number, claim)
        if manifest.get_text(claim, "state") != "Accepted":
            if manifest.get_bool(claim, "required"):
                unsupported.append(f"{subject} is not accepted here, and {_REQUIRED}")
            continue
        try:
            rule = _rule(claim, manifest.name_of(binding))
        except _Refused as refused:
            unsupported.append(f"{subject} is not followed: {refused}")
            continue
        rules.append(replace(rule, up=copies.carried(export), down=copies.carried(binding)))
        unsupported += [
            f"{subject} is followed without {'.'.join(path)}, which is not supported"
            for path in _IGNORED
            if manifest.get(claim, *path)
        ]
    return Claims(tuple(rules), tuple(unsupported))


def _subject(number: int, claim: Manifest) -> str:
    resource = manifest.get_text(claim, "resource")
    if not resource:
        return f"Permission claim {number}"
    kind = names.resource_name(resource, manifest.get_text(claim, "group"))
    return f"Permission claim {number} ({_quoted(kind)})"


def _quoted(text: str) -> str:
    return text if len(text) <= _QUOTED else f"{text[:_QUOTED]}..."


def _rule(claim: Manifest, binding: str) -> Rule:
    for part in _OBJECTS:
        if not isinstance(claim.get(part), dict | None):
            raise _Refused(f"{part} is not an object")
    for path in _REFUSED:
        if manifest.get(claim, *path):
            raise _Refused(f"{'.'.join(path)} is not supported; remove it to have the claim obeyed")
    selector = manifest.get_map(claim, "selector")
    listed = _texts(selector, "names")
    spaces = _texts(selector, "namespaces")
    recreate = manifest.get(claim, "onConflict", "recreateWhenConsumerSideDeleted")
    return Rule(
        group=_fit(claim, "group", _SUBDOMAIN),
        version=_fit(claim, "version", _LABEL),
        resource=_fit(claim, "resource", _LABEL),
        binding=binding,
        owner=_owner(selector),
        names=frozenset(listed) if listed and _ANY not in listed else None,
        literal=frozenset(listed or ()) - {_ANY},
        namespaces=None if spaces is None or _ANY in spaces else frozenset(spaces),
        literal_namespaces=frozenset(spaces or ()) - {_ANY},
        labels=tuple(_labels(selector)),
        fields=tuple(
            _term(term)
            for text in _texts(selector, "fieldSelectors") or ()
            for term in text.split(",")
        ),
        recreate_when_consumer_side_deleted=recreate is None or recreate is True,
        replace_existing=manifest.get_bool(claim, "create", "replaceExisting"),
    )


def _text(claim: Manifest, field: str) -> str:
    value = claim.get(field)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise _Refused(f"{field} is not a text")
    return value


def _fit(claim: Manifest, field: str, form: re.Pattern[str]) -> str:
    value = _text(claim, field)
    if not form.fullmatch(value):
        raise _Refused(f"'{_quoted(value)}' is not a {field}" if value else f"{field} is missing")
    return value


def _owner(selector: Manifest) -> Owner:
    owner = _text(selector, "owner")
    if owner not in _OWNERS:
        raise _Refused("selector.owner is neither Provider nor Consumer")
    return cast("Owner", owner)


def _items(selector: Manifest, field: str) -> list[JSON] | None:
    items = selector.get(field)
    if not isinstance(items, list | None):
        raise _Refused(f"selector.{field} is not a list")
    return items


def _texts(selector: Manifest, field: str) -> list[str] | None:
    items = _items(selector, field)
    if items is None:
        return None
    texts = [item for item in items if isinstance(item, str)]
    if len(texts) != len(items):
        raise _Refused(f"selector.{field} contains other things than texts")
    return texts


def _labels(selector: Manifest) -> Iterator[frozenset[tuple[str, str]]]:
    for labels in _items(selector, "labelSelectors") or ():
        if not isinstance(labels, dict):
            raise _Refused("selector.labelSelectors contains other things than maps of labels")
        pairs = [(key, value) for key, value in labels.items() if isinstance(value, str)]
        if len(pairs) != len(labels):
            raise _Refused("selector.labelSelectors contains a label that is not a text")
        yield frozenset(pairs)


def _term(text: str) -> Term:
    """Read one comparison as Kubernetes writes them: `=`, `==`, `!=`; a backslash escapes."""
    left, sign, right = text.partition("=")
    field = left.removesuffix("!").strip()
    if sign and "\\" not in text and field in (_NAME, _NAMESPACE, _TYPE):
        return Term(field, right.removeprefix("=").strip(), equal=not left.endswith("!"))
    raise _Refused(
        f"the field selector '{_quoted(text)}' is not supported; "
        f"{_NAME}, {_NAMESPACE} and {_TYPE} are"
    )


def _is_met(term: Term, place: ObjectKey, live: Manifest, partial: bool) -> bool:
    if term.field == _TYPE:
        return partial or (manifest.get_text(live, _TYPE) == term.value) is term.equal
    value = place.name if term.field == _NAME else place.namespace
    return (value == term.value) is term.equal
