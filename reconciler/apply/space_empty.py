"""Whether anything of any service is left of an app cluster, on either side."""

from reconciler.api.export import API_SERVICE_EXPORT
from reconciler.api.export_template import API_SERVICE_EXPORT_TEMPLATE
from reconciler.api.service_namespace import API_SERVICE_NAMESPACE, released_kinds
from reconciler.apply import service_objects
from reconciler.apply.writes import Writes
from reconciler.core import names
from reconciler.core.manifest import get_text, name_of


async def what_is_left(plane: Writes, app: Writes, space: str) -> str:
    """Return a sentence about what is still there, "" for nothing.

    Looks for every service that the control plane offers, or exports to this space; and for those
    of which a konnector has noted that copies were released here, offered or not.
    """
    offered = await plane.cluster.list(API_SERVICE_EXPORT_TEMPLATE)
    exported = await plane.cluster.list(API_SERVICE_EXPORT, namespace=space, metadata_only=True)
    mapped = await plane.cluster.list(API_SERVICE_NAMESPACE, namespace=space, metadata_only=True)
    selector = ("spec", "APIServiceSelector")
    known = {
        names.resource_name(get_text(one, *selector, "resource"), get_text(one, *selector, "group"))
        for one in offered.items
    } | set(map(name_of, exported.items))
    known = known.union(*map(released_kinds, mapped.items))
    for name in sorted(known):
        copies = len(await service_objects.copies(plane, name, space))
        if copies:
            return f"{copies} {name} are left on the control plane"
        instances = await service_objects.count(app, name)
        if instances:
            return f"{instances} {name} are left in the app cluster"
    return ""
