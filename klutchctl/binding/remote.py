"""The requests in the binding space, made with the kubeconfig that the provider handed out."""

from collections.abc import Sequence
from typing import Final

from klutchctl.binding import response
from klutchctl.binding.errors import BindEnded, NotInTime
from klutchctl.binding.polling import until
from klutchctl.binding.progress import Progress
from reconciler.api import API_SERVICE_EXPORT_REQUEST
from reconciler.core import keys, manifest
from reconciler.core.errors import AlreadyExists, Forbidden
from reconciler.core.manifest import Manifest
from reconciler.core.refs import Ref
from reconciler.kube.cluster import Cluster

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
        progress.say("request", name=manifest.get_text(request, "metadata", "name"))
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
    made = manifest.put(response.export_request(request), namespace, "metadata", "namespace")
    try:
        return await provider.create(made, kind, manager=manager)
    except AlreadyExists:
        other = response.export_request(request, taken=True)
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
        why = manifest.get_text(last, "status", "terminalMessage") or "it does not say why"
        raise BindEnded(f"the provider has refused the request {name}: {why}")
    if phase is None:
        said = [
            manifest.get_text(one, "message")
            for one in manifest.get_maps(last, "status", "conditions")
        ]
        why = "; ".join(filter(None, said)) or "it says nothing"
        raise NotInTime(f"the provider has not served the request {name} in time: {why}")


async def _live(provider: Cluster, ref: Ref) -> Manifest:
    live = await provider.get(ref)
    if live is None:
        raise BindEnded(f"the provider has deleted the request {ref.name}")
    return live
