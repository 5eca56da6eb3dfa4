"""The documents of the door, as clients read them (protocol-bind.md A.12, and our own). Pure."""

import base64
import json
from collections.abc import Iterable, Sequence
from typing import Final

from bind.door.catalogue import Offer
from bind.door.identity import Identity
from bind.door.settings import DoorSettings
from reconciler.blueprints import consent
from reconciler.core.keys import KLUTCH_GROUP
from reconciler.core.manifest import JSON, Manifest

API_VERSION: Final = "bind.klutchctl.dev/v1alpha1"
_KLUTCH: Final = f"{KLUTCH_GROUP}/v1alpha1"
DEFAULT_NAME: Final = "example-backend"
_VERSION: Final = "v0.0.0"  # what every CLI takes (protocol-bind.md D.3)
# The order in which the original writes what a claim holds.
_CLAIM: Final = (
    "group",
    "resource",
    "version",
    "selector",
    "required",
    "read",
    "create",
    "autoAdopt",
    "autoDonate",
    "onConflict",
    "update",
)
_SELECTOR: Final = ("names", "namespaces", "labelSelectors", "fieldSelectors", "owner")


def text(document: JSON) -> bytes:
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()


def binding_provider(*, authorize_url: str, pretty_name: str) -> Manifest:
    """Return the body of `/export`; its apiVersion has no group on purpose."""
    grant: Manifest = {"authenticatedURL": authorize_url}
    return {
        "kind": "BindingProvider",
        "apiVersion": "v1alpha1",
        "providerPrettyName": pretty_name or DEFAULT_NAME,
        "version": _VERSION,
        "authenticationMethods": [{"method": "OAuth2CodeGrant", "oauth2CodeGrant": grant}],
    }


def export_request(offer: Offer) -> Manifest:
    """Return the request that a CLI makes for an offer, with the claims to be agreed to."""
    resource: dict[str, JSON] = {"group": offer.resource.group, "resource": offer.resource.plural}
    if offer.claims:
        resource["permissionClaims"] = [_claim(claim) for claim in offer.claims]
    return {
        "kind": "APIServiceExportRequest",
        "apiVersion": _KLUTCH,
        "metadata": {"name": offer.resource.name},
        "spec": {"resources": [resource]},
        "status": {},
    }


def _claim(claim: Manifest) -> Manifest:
    stated = {"required": False, **claim}
    if isinstance(selector := stated.get("selector"), dict):
        stated["selector"] = _ordered(selector, _SELECTOR)
    if not stated.get("group"):
        stated.pop("group", None)
    return _ordered(stated, _CLAIM)


def _ordered(held: Manifest, order: Sequence[str]) -> dict[str, JSON]:
    known = {name: held[name] for name in order if name in held}
    return {**known, **held}


def binding_response(
    offers: Iterable[Offer], *, kubeconfig: bytes, identity: Identity | None, sid: str = ""
) -> Manifest:
    """Return what a CLI needs to bind. Without an identity, a machine asked, which knows its own.

    The kubeconfig is empty where nothing was made.
    """
    grant: Manifest = {}
    if identity is not None:
        grant = {"oauth2CodeGrant": {"sid": sid, "id": f"{identity.issuer}/{identity.subject}"}}
    return {
        "kind": "BindingResponse",
        "apiVersion": _KLUTCH,
        "authentication": grant,
        "kubeconfig": base64.b64encode(kubeconfig).decode(),
        "requests": [export_request(offer) for offer in offers],
    }


def encoded(response: Manifest) -> str:
    """Return a BindingResponse as a query has it, in the alphabet that every CLI reads (F10)."""
    return base64.b64encode(text(response)).decode()


def failure(code: str, message: str) -> Manifest:
    """Return the body of a refusal below `/api`, by its code."""
    return {"kind": "Error", "apiVersion": API_VERSION, "code": code, "message": message}


def consent_of(offer: Offer, agreed: Sequence[int] | None) -> list[JSON] | None:
    """Return the claims of an offer with what was agreed to; None where nobody was asked."""
    if agreed is None:
        return None
    return [_claim(claim) for claim in consent.accepted(offer.claims, agreed)]


def offer(one: Offer) -> dict[str, JSON]:
    return {
        "namespace": one.namespace,
        "name": one.name,
        "group": one.resource.group,
        "resource": one.resource.plural,
        "scope": one.scope,
        "title": one.title,
        "description": one.description,
        "permissionClaims": [_claim(claim) for claim in one.claims],
    }


def front_door(settings: DoorSettings) -> Manifest:
    """Return what a door can do beyond the original's, and where."""
    public = settings.public
    device: Manifest = {
        "issuer": settings.issuer,
        "clientID": settings.cli_client_id,
        "scopes": list(settings.scopes),
        "token": "id_token",
    }
    return {
        "apiVersion": API_VERSION,
        "kind": "FrontDoor",
        "redeemURL": f"{public}/api/v1/redeem",
        "bindURL": f"{public}/api/v1/bind",
        "catalogueURL": f"{public}/api/v1/catalogue",
        "joinURL": "",
        "audience": public,
        "konnectorImage": settings.konnector_image,
        "device": device if settings.cli_client_id else None,
        "machines": {"issuer": settings.issuer, "scopes": []},
    }
