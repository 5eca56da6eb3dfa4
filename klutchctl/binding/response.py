"""What a provider hands out: a kubeconfig for the binding space, and the requests to make there.

The BindingResponse of protocol-bind.md A.12. All of it comes from another party, and is checked
before any of it gets into a name, a sentence or a cluster. Pure.
"""

import base64
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from klutchctl.binding.errors import BadAnswer
from klutchctl.binding.provider import parsed
from reconciler.api import API_SERVICE_EXPORT_REQUEST
from reconciler.core import names, yaml_text
from reconciler.core.errors import ConfigError
from reconciler.core.keys import API_VERSION, KLUTCH_GROUP
from reconciler.core.manifest import JSON, Manifest, get_map, get_maps, get_text
from reconciler.core.refs import GroupResource
from reconciler.kube import kubeconfig
from reconciler.kube.connection import Connection
from reconciler.kube.networks import ANYWHERE, Networks

_RESPONSE: Final = "BindingResponse"
_GROUP_VERSION: Final = f"{KLUTCH_GROUP}/{API_VERSION}"
_PLURAL: Final = re.compile(r"[a-z][-a-z0-9]*[a-z0-9]")
_URL_SAFE: Final = str.maketrans("-_", "+/")
_MOST: Final = 100  # resources, claims


@dataclass(frozen=True, slots=True)
class Wanted:
    """A resource that a provider grants, and what it claims for it."""

    resource: GroupResource
    claims: Sequence[Manifest] = ()


@dataclass(frozen=True, slots=True)
class Grant:
    """A BindingResponse that was checked.

    `requests` are the APIServiceExportRequests as they were sent. In a dry run of a front door of
    ours `kubeconfig` is empty, and `remote` None.
    """

    requests: Sequence[Manifest]
    kubeconfig: bytes = field(repr=False)
    remote: Connection | None

    @property
    def wanted(self) -> tuple[Wanted, ...]:
        """All resources, each once."""
        found: dict[GroupResource, Wanted] = {}
        for request in self.requests:
            for one in wanted_of(request):
                found.setdefault(one.resource, one)
        return tuple(found.values())


def decoded(text: str) -> bytes:
    """Return what base64 of either alphabet holds, padded or not. Raises BadAnswer."""
    plain = text.translate(_URL_SAFE).rstrip("=")
    try:
        return base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)
    except ValueError:  # also for text beyond ASCII
        raise BadAnswer("the response is not base64") from None


def session_of(document: Mapping[str, JSON]) -> str:
    """Return the session that a BindingResponse is for; "" for none. Raises BadAnswer."""
    if get_text(document, "kind") != _RESPONSE or (
        get_text(document, "apiVersion") != _GROUP_VERSION
    ):
        raise BadAnswer(f"the response is no {_RESPONSE} of {_GROUP_VERSION}")
    return get_text(document, "authentication", "oauth2CodeGrant", "sid")


def document_of(response: str) -> Mapping[str, JSON]:
    """Return the document in the query field `response`. Raises BadAnswer."""
    return parsed(decoded(response), "the response")


def grant_of(
    document: Mapping[str, JSON], *, dry_run: bool = False, networks: Networks = ANYWHERE
) -> Grant:
    """Return what a BindingResponse grants. Raises BadAnswer."""
    session_of(document)
    requests = get_maps(document, "requests")
    if not requests or len(requests) > _MOST:
        raise BadAnswer("the response has no requests, or too many")
    for request in requests:
        require_request(request)
    content = _kubeconfig(document)
    if not content and dry_run:
        return Grant(requests, content, None)
    return Grant(requests, content, remote_of(content, networks))


def remote_of(content: bytes, networks: Networks = ANYWHERE) -> Connection:
    """Return where a provider's kubeconfig leads: to its API server, and the space there.

    It runs and reads nothing of this machine. Raises BadAnswer.
    """
    found = kubeconfig.from_content(content, name="the provider", networks=networks)
    if isinstance(found, str):
        raise BadAnswer(f"the response {found}")
    if not found.namespace:
        raise BadAnswer("the response has a kubeconfig whose current context names no namespace")
    return found


def parsed_kubeconfig(content: bytes) -> Manifest:
    """Return a kubeconfig as a document. Raises BadAnswer."""
    try:
        return yaml_text.read(content, "the kubeconfig").plain()
    except ConfigError as error:
        raise BadAnswer(str(error)) from None


def merged(grants: Sequence[Grant]) -> Grant:
    """Return several grants of one provider as one. Raises BadAnswer where spaces differ."""
    last = grants[-1]
    if len({place_of(grant.remote) for grant in grants}) > 1:
        raise BadAnswer("the responses lead to different binding spaces")
    requests = [request for grant in grants for request in grant.requests]
    return Grant(requests, last.kubeconfig, last.remote)


def place_of(remote: Connection | None) -> tuple[str, str]:
    """Return server and namespace, by which kubeconfigs of one space are recognised (D.2)."""
    return ("", "") if remote is None else (remote.server, remote.namespace)


def wanted_of(request: Manifest) -> list[Wanted]:
    """Return the resources of an APIServiceExportRequest."""
    return [
        Wanted(
            GroupResource(get_text(one, "group"), get_text(one, "resource")),
            get_maps(one, "permissionClaims"),
        )
        for one in get_maps(request, "spec", "resources")
    ]


def _kubeconfig(document: Mapping[str, JSON]) -> bytes:
    try:
        return base64.b64decode(get_text(document, "kubeconfig"), validate=True)
    except ValueError:
        raise BadAnswer("the kubeconfig in the response is not base64") from None


def require_request(request: Manifest) -> None:
    """Refuse what is no APIServiceExportRequest that can be made. Raises BadAnswer."""
    if get_text(request, "apiVersion") != _GROUP_VERSION:
        raise BadAnswer(f"the request is not of {_GROUP_VERSION}")
    if get_text(request, "kind") != API_SERVICE_EXPORT_REQUEST.kind:
        raise BadAnswer(f"the request is no {API_SERVICE_EXPORT_REQUEST.kind}")
    name = get_text(request, "metadata", "name")
    wanted = wanted_of(request)
    if (name and names.subdomain_problem(name)) or not 0 < len(wanted) <= _MOST:
        raise BadAnswer("the request has no valid name, or no resources")
    for one in wanted:
        _require_resource(one.resource)
        if len(one.claims) > _MOST:
            raise BadAnswer(f"{one.resource.name} has more than {_MOST} permission claims")
        for claim in one.claims:
            _require_claim(claim)


def _require_resource(resource: GroupResource) -> None:
    group_is_bad = bool(resource.group) and bool(names.subdomain_problem(resource.group))
    if group_is_bad or not _PLURAL.fullmatch(resource.plural):
        raise BadAnswer("the request names no valid resource")


def _require_claim(claim: Manifest) -> None:
    _require_resource(GroupResource(get_text(claim, "group"), get_text(claim, "resource")))
    if not get_text(claim, "version"):
        raise BadAnswer("a permission claim in the response has no version")


def export_request(request: Manifest, *, taken: bool = False) -> Manifest:
    """Return the APIServiceExportRequest to create; `taken`: its name is another's (D.4).

    The status is left to the server, whose defaults begin it.
    """
    name = get_text(request, "metadata", "name")
    prefix = f"{name}-" if name else "export-"
    metadata: dict[str, JSON] = {"generateName": prefix} if taken or not name else {"name": name}
    return {
        "apiVersion": _GROUP_VERSION,
        "kind": API_SERVICE_EXPORT_REQUEST.kind,
        "metadata": metadata,
        "spec": get_map(request, "spec"),
    }
