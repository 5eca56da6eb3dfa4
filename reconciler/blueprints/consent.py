"""Permission claims as sentences, and what became of them: what a person agrees to.

Composed as protocol-bind.md D.6, for prompts and pages alike; what else of a selector a claim names
is ours, and follows the names (trust.md T4). What a provider sends is
quoted, with all beyond ASCII escaped, so that no claim can forge a line of its own.
"""

import json
from collections.abc import Collection, Iterator, Sequence
from typing import Final

from reconciler.core.keys import OWNER_CONSUMER, OWNER_PROVIDER
from reconciler.core.manifest import Manifest, get, get_bool, get_maps, get_text, get_texts
from reconciler.core.names import is_reserved, resource_name
from reconciler.core.refs import SECRET

ACCEPTED: Final = "Accepted"
REJECTED: Final = "Rejected"
QUESTION: Final = "Do you accept this Permission? [No,Yes]"

_APP_SECRETS: Final = "secrets of applications"
_RESERVED: Final = "  RESERVED: it is of your cluster itself, or of what connects it"
_VERBS: Final = {OWNER_PROVIDER: "write", OWNER_CONSUMER: "read"}


def sentences(claim: Manifest) -> str:
    """Return what a permission claim means, in lines, without the question (D.6 a to f)."""
    lines = [*_wish(claim), *_namespaces(claim), *_selectors(claim), *_fields(claim)]
    return "\n".join([*lines, " ".join(_notes(claim))])


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
    """Return what accepted claims open of the cluster itself, such as `secrets in kube-system`."""
    accepting = [claim for claim in claims if get_text(claim, "state") == ACCEPTED]
    return sorted(opened for claim in accepting for opened in _inside(claim))


def openings(claim: Manifest) -> list[str]:
    """Return what a claim opens that nobody accepts by accepting its kind.

    It is named as `--accept` takes it: places of the cluster itself, and Secrets of applications.
    """
    of_provider = get_text(claim, "selector", "owner") == OWNER_PROVIDER
    is_read = not of_provider or get_bool(claim, "autoAdopt")
    secrets = [_APP_SECRETS] if claim_key(claim) == SECRET.plural and is_read else []
    return sorted([*_inside(claim), *secrets])


def _inside(claim: Manifest) -> list[str]:
    namespaces = filter(is_reserved, get_texts(claim, "selector", "namespaces"))
    return [f"{claim_key(claim)} in {namespace}" for namespace in namespaces]


def _wish(claim: Manifest) -> Iterator[str]:
    chosen = get_texts(claim, "selector", "names")
    begin = f"The provider wants to {_access(claim)} {_object_type(claim)}"
    if not chosen:
        yield f"{begin} on your cluster."
        return
    yield f"{begin} which are referenced with:"
    yield from (f"\t- name: {_quoted(name)}" for name in chosen)
    yield "on your cluster."


def _namespaces(claim: Manifest) -> Iterator[str]:
    named = get_texts(claim, "selector", "namespaces")
    if not named or set(named) == {"*"}:
        return
    yield "They are in these namespaces:"
    # A long list hides none of those that are first.
    for namespace in sorted(named, key=is_reserved, reverse=True):
        mark = _RESERVED if is_reserved(namespace) else ""
        yield f"\t- namespace: {_quoted(namespace)}{mark}"


def _selectors(claim: Manifest) -> Iterator[str]:
    if alternatives := get_maps(claim, "selector", "labelSelectors"):
        yield "They have all labels of one of these lines:"
        yield from (f"\t{json.dumps(labels, sort_keys=True)}" for labels in alternatives)
    if fields := get_texts(claim, "selector", "fieldSelectors"):
        yield "They have all of these fields:"
        yield from (f"\t{_quoted(field)}" for field in fields)


def _access(claim: Manifest) -> str:
    if get_bool(claim, "autoDonate"):
        return "create user-owned"
    if get_bool(claim, "autoAdopt"):
        return "have ownership of"
    return _VERBS.get(get_text(claim, "selector", "owner"), "read and write")


def _object_type(claim: Manifest) -> str:
    group, version = get_text(claim, "group"), get_text(claim, "version")
    resource = get_text(claim, "resource")
    plain = resource.isascii() and resource.isprintable() and " " not in resource
    api_version = f"{group}/{version}" if group else version
    shown = resource if plain else _quoted(resource)
    return f"{shown} objects (apiVersion: {_quoted(api_version)})"


def _fields(claim: Manifest) -> Iterator[str]:
    for field, headline in (
        ("fields", "After they were created, it changes only these fields of them:"),
        ("preserving", "It leaves these fields of them as they are on your cluster:"),
    ):
        paths = get_texts(claim, "update", field)
        if paths:
            yield headline
            yield from (f"\t{_quoted(path)}" for path in paths)


def _notes(claim: Manifest) -> Iterator[str]:
    if get_bool(claim, "create", "replaceExisting"):
        yield "Objects that exist already will be replaced."
    # An API server fills in true where a claim does not say.
    if get(claim, "onConflict", "recreateWhenConsumerSideDeleted") is not False:
        yield "Created objects will be recreated upon deletion."
    if get_bool(claim, "update", "alwaysRecreate"):
        yield "Changed objects will be deleted and created again."
    wanted = "required in order to proceed" if get_bool(claim, "required") else "optional"
    yield f"Accepting this Permission is {wanted}."


def _quoted(text: str) -> str:
    return json.dumps(text)
