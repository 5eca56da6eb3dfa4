"""Parses a provider's answer: a kubeconfig of the binding space, and the requests to make.

The BindingResponse of protocol-bind.md A.12. All of it comes from another party, and is checked
before any of it gets into a name, a sentence or a cluster. Pure.
"""

import asyncio
import base64
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from klutchctl.binding.progress import BadAnswer, BindEnded, NotInTime, Progress
from klutchctl.binding.provider import parsed
from reconciler.api import API_SERVICE_EXPORT_REQUEST
from reconciler.core import keys, manifest, names, yaml_text
from reconciler.core.errors import AlreadyExists, ConfigError, Forbidden
from reconciler.core.keys import API_VERSION, KLUTCH_GROUP
from reconciler.core.manifest import JSON, Manifest, get_map, get_maps, get_text
from reconciler.core.refs import GroupResource, Ref
from reconciler.kube import kubeconfig
from reconciler.kube.cluster import Cluster
from reconciler.kube.connection import Connection
from reconciler.kube.networks import ANYWHERE, Networks

_RESPONSE: Final = "BindingResponse"
_GROUP_VERSION: Final = f"{KLUTCH_GROUP}/{API_VERSION}"
_PLURAL: Final = re.compile(r"[a-z][-a-z0-9]*[a-z0-9]")
_URL_SAFE: Final = str.maketrans("-_", "+/")
_MOST: Final = 100  # resources, claims


@dataclass(frozen=True, slots=True)
class Wanted:
    """A resource that a provider grants, and its claims."""

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
        found: dict[GroupResource, Wanted] = {}
        for request in self.requests:
            for one in wanted_of(request):
                found.setdefault(one.resource, one)
        return tuple(found.values())


def decoded(text: str) -> bytes:
    """Decode base64 of either alphabet, padded or not. Raises BadAnswer."""
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
    """Return the grant of a BindingResponse. Raises BadAnswer."""
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
        raise BadAnswer("the responses name different binding spaces")
    requests = [request for grant in grants for request in grant.requests]
    return Grant(requests, last.kubeconfig, last.remote)


def place_of(remote: Connection | None) -> tuple[str, str]:
    """Return server and namespace, by which kubeconfigs of one space are recognised (D.2)."""
    return ("", "") if remote is None else (remote.server, remote.namespace)


def wanted_of(request: Manifest) -> list[Wanted]:
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
    """Refuse any object but an APIServiceExportRequest that can be made. Raises BadAnswer."""
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


T = TypeVar("T")


async def until(
    look: Callable[[], Awaitable[T | None]], *, seconds: float, every: float = 0.5
) -> T | None:
    """Return the result of `look`, or None where it has none in time. It looks once at least."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while (found := await look()) is None:
        left = end - loop.time()
        if left <= 0:
            return None
        await asyncio.sleep(min(every, left))
    return found


# The backend says after a minute what it cannot serve.
_SECONDS: Final = 70.0
_RIGHTS_SECONDS: Final = 10.0


async def request_exports(
    provider: Cluster,
    namespace: str,
    requests: Sequence[Manifest],
    progress: Progress,
) -> None:
    """Make the requests, and wait until all are served.

    Raises BindEnded where the provider will not, NotInTime, and ClusterErrors.
    """
    for request in requests:
        progress.report("request", name=manifest.get_text(request, "metadata", "name"))
        await _served(provider, await _created(provider, namespace, request))


async def _created(provider: Cluster, namespace: str, request: Manifest) -> Manifest:
    """Make a request as soon as it may be made: an original's controller gives the right for it.

    Its backend has sent the kubeconfig by then. Raises Forbidden where the right does not come.
    """
    refused: Forbidden | None = None

    async def attempt() -> Manifest | None:
        nonlocal refused
        try:
            return await _create(provider, namespace, request)
        except Forbidden as error:
            refused = error
            return None

    made = await until(attempt, seconds=_RIGHTS_SECONDS, every=1.0)
    if made is None:
        assert refused is not None
        raise refused
    return made


async def _create(provider: Cluster, namespace: str, request: Manifest) -> Manifest:
    kind, manager = API_SERVICE_EXPORT_REQUEST, keys.MANAGER_BIND
    made = manifest.put(export_request(request), namespace, "metadata", "namespace")
    try:
        return await provider.create(made, kind, manager=manager)
    except AlreadyExists:
        other = export_request(request, taken=True)
        again = manifest.put(other, namespace, "metadata", "namespace")
        return await provider.create(again, kind, manager=manager)


async def _served(provider: Cluster, made: Manifest) -> None:
    ref = manifest.ref_of(provider.name, API_SERVICE_EXPORT_REQUEST, made)
    last: Manifest = made

    async def look() -> str | None:
        nonlocal last
        last = await _live(provider, ref)
        phase = manifest.get_text(last, "status", "phase")
        return phase if phase in ("Succeeded", "Failed") else None

    phase = await until(look, seconds=_SECONDS, every=1.0)
    name = ref.name
    if phase == "Failed":
        why = manifest.get_text(last, "status", "terminalMessage") or "it gives no reason"
        raise BindEnded(f"the provider has refused the request {name}: {why}")
    if phase is None:
        messages = [
            manifest.get_text(one, "message")
            for one in manifest.get_maps(last, "status", "conditions")
        ]
        why = "; ".join(filter(None, messages)) or "it gives no reason"
        raise NotInTime(f"the provider has not served the request {name} in time: {why}")


async def _live(provider: Cluster, ref: Ref) -> Manifest:
    live = await provider.get(ref)
    if live is None:
        raise BindEnded(f"the provider has deleted the request {ref.name}")
    return live
