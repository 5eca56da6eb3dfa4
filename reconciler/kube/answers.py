"""What successful answers hold, checked: an answer that is not what was asked for is an error.

Gateways and proxies answer 200 with pages of their own, and an outage that reads as an empty list
would look like an empty cluster. Pure.
"""

from collections.abc import Sequence

from reconciler.core.errors import NotServed, Unreachable
from reconciler.core.manifest import JSON, Manifest, get, get_bool, get_maps, get_text
from reconciler.core.refs import Kind
from reconciler.kube.requests import Request


def garbled(request: Request, message: str) -> Unreachable:
    """Return the error for a success that is not what was asked for."""
    return Unreachable(
        f"{message}: is this a Kubernetes API server?",
        ref=request.ref,
        verb=request.verb,
        outcome_unknown=not request.repeatable,
    )


def named(answer: Manifest, request: Request) -> Manifest:
    """Return the object that the request names, if it names one."""
    wanted = request.ref.name
    if wanted and get_text(answer, "metadata", "name") != wanted:
        raise garbled(request, "the answer is another object")
    return answer


def items(answer: Manifest, request: Request) -> list[Manifest]:
    """Return the objects of a list. An answer that is no list is an error, never empty."""
    kind, listed = request.ref.kind, answer.get("items", ())
    token = get(answer, "metadata", "continue")
    if (
        not _is_list_of(kind, answer)
        or not get_text(answer, "metadata", "resourceVersion")
        or not (token is None or isinstance(token, str))
        or not (listed is None or isinstance(listed, list))
        or not all(isinstance(item, dict) for item in listed or ())
    ):
        raise garbled(request, "the answer is not a list of such objects")
    # Lists of built-in kinds leave the type of their items out.
    types: dict[str, JSON] = {"apiVersion": kind.api_version, "kind": kind.kind}
    return [item if "kind" in item else types | item for item in listed or []]


def _is_list_of(kind: Kind, answer: Manifest) -> bool:
    called, version = get_text(answer, "kind"), get_text(answer, "apiVersion")
    if called == "PartialObjectMetadataList":
        return version.startswith("meta.k8s.io/")
    # A CRD may call its lists as it likes.
    custom = "." in kind.group and not kind.group.endswith(".k8s.io")
    right = called not in ("", "Status") if custom else called == f"{kind.kind}List"
    return right and version == kind.api_version


def require_deletion(answer: Manifest, request: Request) -> None:
    """Raise Unreachable for an answer that is neither a success nor the object."""
    done = (get_text(answer, "kind"), get_text(answer, "status")) == ("Status", "Success")
    if not done and get_text(answer, "metadata", "name") != request.ref.name:
        raise garbled(request, "the answer is neither success nor the object")


def kind(answer: Manifest, request: Request) -> Kind:
    """Return the kind that is served as the resource asked for. Raises NotServed."""
    asked = request.ref.kind
    for resource in get_maps(answer, "resources"):
        if get_text(resource, "name") == asked.plural:
            return Kind(
                asked.group,
                asked.version,
                get_text(resource, "kind"),
                asked.plural,
                namespaced=get_bool(resource, "namespaced"),
            )
    message = f"the cluster does not serve {asked.resource}/{asked.version}"
    raise NotServed(message, ref=request.ref, verb=request.verb)


def versions(answer: Manifest, request: Request) -> Sequence[str]:
    """Return the versions in which the group asked for is served."""
    if answer.get("kind") != "APIGroupList":
        raise garbled(request, "discovery answers with something else")
    return [
        get_text(version, "version")
        for group in get_maps(answer, "groups")
        if get_text(group, "name") == request.ref.kind.group
        for version in get_maps(group, "versions")
    ]
