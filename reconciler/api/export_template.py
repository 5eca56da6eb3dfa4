"""APIServiceExportTemplate: what may be exported, and with which claims (protocol-bind A.8)."""

from collections.abc import Iterable
from typing import Final

from reconciler.core.keys import API_VERSION, TEMPLATE_GROUP
from reconciler.core.manifest import Manifest, get_map, get_text, identity_of, is_deleting
from reconciler.core.refs import GroupResource, Kind

API_SERVICE_EXPORT_TEMPLATE: Final = Kind(
    TEMPLATE_GROUP, API_VERSION, "APIServiceExportTemplate", "apiserviceexporttemplates"
)


def offered_resource(template: Manifest) -> GroupResource:
    """Return what a template lets be exported."""
    selector = get_map(template, "spec", "APIServiceSelector")
    return GroupResource(get_text(selector, "group"), get_text(selector, "resource"))


def by_resource(templates: Iterable[Manifest]) -> dict[GroupResource, Manifest]:
    """Return the template of each resource that counts: the first by namespace and name (B.3).

    A template that is being deleted offers nothing any more.
    """
    counting: dict[GroupResource, Manifest] = {}
    for template in sorted(templates, key=identity_of):
        if not is_deleting(template):
            counting.setdefault(offered_resource(template), template)
    return counting
