"""Describes permission claims and their states in words, for a person who decides.

A heading and rows, for prompts and pages alike: all of a selector, whatever narrows it. What a
provider sends is set apart: quoted in prompts, with all beyond ASCII escaped, so that no claim can
forge a line of its own; isolated on pages.
"""

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from reconciler.core.keys import OWNER_CONSUMER, OWNER_PROVIDER
from reconciler.core.manifest import Manifest, get, get_bool, get_maps, get_text, get_texts
from reconciler.core.names import is_reserved, resource_name
from reconciler.core.refs import SECRET

ACCEPTED: Final = "Accepted"
REJECTED: Final = "Rejected"
QUESTION: Final = "Do you accept this Permission? [No,Yes]"

_KINDS: Final = {"secrets": "Secrets", "configmaps": "ConfigMaps"}
_TAKES: Final = ("autoDonate", "autoAdopt")  # who owns the objects is another question then
_HEADINGS: Final = {
    "": ("Read and write", "in your namespaces"),
    OWNER_PROVIDER: ("Put", "into your namespaces"),
    OWNER_CONSUMER: ("Read", "in your namespaces"),
    "autoAdopt": ("Take over", "in your namespaces"),
    "autoDonate": ("Put", "into your namespaces, which are yours from then on"),
}
_IF_SO: Final = (
    (("create", "replaceExisting"), "If one is there", "it is replaced"),
    (("update", "alwaysRecreate"), "If one changes", "it is deleted, and made again"),
)
_LISTS: Final = (
    (("selector", "fieldSelectors"), "Fields", "only those with all of these:"),
    (("update", "fields"), "Changes", "of these fields alone, once they are there:"),
    (("update", "preserving"), "Keeps", "these fields as they are in your cluster:"),
)


@dataclass(frozen=True, slots=True)
class Row:
    """A part of a permission claim. `items` are the provider's words, the others ours."""

    name: str
    text: str
    items: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Terms:
    """A permission claim in words: a heading around the provider's word for a kind, and rows."""

    begin: str
    kind: str
    end: str
    rows: Sequence[Row]


def terms(claim: Manifest) -> Terms:
    """Return all that a person accepts with a permission claim, and the effect of a no."""
    kind = _KINDS.get(claim_key(claim), claim_key(claim))
    owner = get_text(claim, "selector", "owner")
    owner = next((one for one in _TAKES if get_bool(claim, one)), owner)
    begin, end = _HEADINGS.get(owner, _HEADINGS[""])
    return Terms(begin, kind, end, [*_rows(claim), Row("Without it", _without(claim, kind))])


def _rows(claim: Manifest) -> Iterator[Row]:
    yield _chosen("Which", "with these names", get_texts(claim, "selector", "names"), "all names")
    if alternatives := get_maps(claim, "selector", "labelSelectors"):
        lines = [json.dumps(labels, sort_keys=True) for labels in alternatives]
        yield Row("Labels", "all of one of these lines:", lines)
    named = get_texts(claim, "selector", "namespaces")
    yield _chosen("Where", "in these namespaces", named, "in all namespaces but the cluster's own")
    if own := list(filter(is_reserved, named)):
        yield Row("Reserved", "in these, of your cluster itself or of what connects it:", own)
    if get_text(claim, "selector", "owner") == OWNER_CONSUMER:
        yield Row("If you delete one", "the provider's copy goes, too")
    else:
        back = get(claim, "onConflict", "recreateWhenConsumerSideDeleted") is not False
        yield Row("If you delete one", "it comes back" if back else "it stays away")
    yield from (Row(*row) for path, *row in _IF_SO if get_bool(claim, *path))
    for path, name, text in _LISTS:
        if paths := get_texts(claim, *path):
            yield Row(name, text, paths)


def _chosen(name: str, some: str, given: Sequence[str], every: str) -> Row:
    """Show also names beside `*`: a name opens more than `*` does (`Rule.literal`)."""
    named = [one for one in given if one != "*"]
    if given and len(named) == len(given):
        return Row(name, f"{some}:", named)
    return Row(name, f"{every}, and {some}:" if named else every, named)


def _without(claim: Manifest, kind: str) -> str:
    if get_bool(claim, "required"):
        return "the service is not bound"
    if get_text(claim, "selector", "owner") == OWNER_CONSUMER:
        return "the service cannot read them, and may not work"
    if kind == "Secrets":
        return "credentials of the service do not arrive in your cluster"
    return "they do not arrive in your cluster, and the service may not work"


def sentences(claim: Manifest) -> str:
    """Return the meaning of a permission claim, in lines, without the question."""
    found = terms(claim)
    plain = found.kind.isascii() and found.kind.isprintable() and " " not in found.kind
    wanted = "required" if get_bool(claim, "required") else "optional"
    kind = found.kind if plain else json.dumps(found.kind)
    rows = (
        " ".join([f"\t{one.name}:", one.text, *map(json.dumps, one.items)]) for one in found.rows
    )
    heading = f"The provider asks for this ({wanted}): {found.begin} {kind} {found.end}"
    return "\n".join([heading, *rows])


def claim_key(claim: Manifest) -> str:
    """Return `resource.group` of the claimed kind, the bare resource for the core group."""
    return resource_name(get_text(claim, "resource"), get_text(claim, "group"))


def accepted(claims: Sequence[Manifest], choices: Collection[int]) -> list[Manifest]:
    """Return the claims as an APIServiceBinding has them; `choices` are places of those accepted.

    All others are rejected.
    """
    return [
        {**claim, "state": ACCEPTED if place in choices else REJECTED}
        for place, claim in enumerate(claims)
    ]


def required_rejected(claims: Sequence[Manifest], choices: Collection[int]) -> list[str]:
    """Return the kinds of required claims that are not among the choices (F23)."""
    return [
        claim_key(claim)
        for place, claim in enumerate(claims)
        if place not in choices and get_bool(claim, "required")
    ]


def reserved(claims: Sequence[Manifest]) -> list[str]:
    """Return the parts of the cluster itself that claims open, such as `secrets in kube-system`."""
    accepting = [claim for claim in claims if get_text(claim, "state") == ACCEPTED]
    return sorted(opened for claim in accepting for opened in _inside(claim))


def openings(claim: Manifest) -> list[str]:
    """Return the openings of a claim that accepting its kind does not accept.

    It is named as `--accept` takes it: places of the cluster itself, and Secrets of applications.
    """
    of_provider = get_text(claim, "selector", "owner") == OWNER_PROVIDER
    is_read = not of_provider or get_bool(claim, "autoAdopt")
    secrets = ["secrets of applications"] if claim_key(claim) == SECRET.plural and is_read else []
    return sorted([*_inside(claim), *secrets])


def _inside(claim: Manifest) -> list[str]:
    namespaces = filter(is_reserved, get_texts(claim, "selector", "namespaces"))
    return [f"{claim_key(claim)} in {namespace}" for namespace in namespaces]
