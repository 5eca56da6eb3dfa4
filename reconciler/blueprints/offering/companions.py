"""What goes with generated CRDs: templates to bind them by, rights, and documents of a fleet."""

from collections.abc import Sequence
from typing import Final

from reconciler.api import API_SERVICE_EXPORT_TEMPLATE
from reconciler.blueprints.objects import Marks, build
from reconciler.blueprints.offering.catalogue import Offering
from reconciler.blueprints.offering.kinds import Named
from reconciler.blueprints.offering.wording import line
from reconciler.core import keys, names
from reconciler.core.manifest import JSON, Manifest, get_text
from reconciler.core.refs import CLUSTER_ROLE, SECRET, GroupResource, Kind

NAMESPACE: Final = "klutch-osb"  # where brokers are, unless they say another one
_FLEET: Final = "fleet.klutchctl.dev/v1alpha1"
_HANDED_ON: Final = ("create", "delete", "get", "list", "patch", "update", "watch")
_SERVED: Final = ("list", "patch", "watch")
_SECURE: Final = "https://"
_LONGEST_TITLE: Final = 100


def templates(
    offering: Offering, named: Named, *, namespace: str, bindable: bool
) -> list[Manifest]:
    """Return the APIServiceExportTemplates of an offering's kinds."""
    title = line(get_text(offering.metadata, "displayName"), longest=_LONGEST_TITLE) or line(
        offering.name, longest=_LONGEST_TITLE
    )
    words = line(offering.description)
    found = [_template(named.instances, namespace, _shown(title, words, offering), [])]
    if bindable:
        marks = _shown(
            f"{title}: credentials",
            f"Credentials for {named.instances.kind}. They"
            " arrive as a Secret, which needs your consent.",
            offering,
        )
        found.append(_template(named.bindings, namespace, marks, [_claim(named)]))
    return found


def _shown(title: str, words: str, offering: Offering) -> Marks:
    page = get_text(offering.metadata, "documentationUrl")
    docs = page if page.startswith(_SECURE) and page.isprintable() and " " not in page else ""
    noted = {keys.TITLE: title, keys.DESCRIPTION: words, keys.DOCS_URL: docs}
    return Marks(annotations={key: text for key, text in noted.items() if text})


def _template(kind: Kind, namespace: str, marks: Marks, claims: Sequence[Manifest]) -> Manifest:
    selector = {"group": kind.group, "resource": kind.plural, "version": kind.version}
    spec: dict[str, JSON] = {"APIServiceSelector": selector}
    if claims:
        spec["permissionClaims"] = claims
    return build(
        API_SERVICE_EXPORT_TEMPLATE, kind.resource, namespace=namespace, marks=marks, spec=spec
    )


def _claim(named: Named) -> dict[str, JSON]:
    """Return the claim on just the Secrets of this offering."""
    labels: list[JSON] = [{keys.OSB_SERVICE: named.service}]
    selector: dict[str, JSON] = {"owner": keys.OWNER_PROVIDER, "labelSelectors": labels}
    return {
        "group": SECRET.group,
        "resource": SECRET.plural,
        "version": SECRET.version,
        "selector": selector,
    }


def rights(broker: str, kinds: Sequence[Kind], *, secrets: bool) -> list[Manifest]:
    """Return the ClusterRoles that klutch-bind and klutch-osb add to theirs.

    The backend hands on what konnectors may do, so that it has to hold it, for Secrets too.
    """
    groups = sorted({kind.group for kind in kinds})
    plurals = sorted(kind.plural for kind in kinds)
    handed_on = [_rule(groups, plurals, _HANDED_ON)]
    if secrets:
        handed_on.append(_rule([SECRET.group], [SECRET.plural], _HANDED_ON))
    statuses = [f"{plural}/status" for plural in plurals]
    served = [_rule(groups, plurals, _SERVED), _rule(groups, statuses, ("patch",))]
    return [_role(names.BACKEND, broker, handed_on), _role(keys.MANAGER_OSB, broker, served)]


def _role(program: str, broker: str, rules: Sequence[Manifest]) -> Manifest:
    label = f"{keys.OWN_PREFIX}aggregate-to-{program}"
    return build(
        CLUSTER_ROLE, f"{program}-broker-{broker}", marks=Marks({label: "true"}), rules=rules
    )


def _rule(groups: Sequence[str], resources: Sequence[str], verbs: Sequence[str]) -> Manifest:
    return {"apiGroups": groups, "resources": resources, "verbs": verbs}


def fleet_template(named: Named, *, bindable: bool) -> Manifest:
    """Return the document of a fleet that offers the kinds, with that claim as the ceiling."""
    kinds = [named.instances, *([named.bindings] if bindable else [])]
    spec: dict[str, JSON] = {
        "resources": [GroupResource(kind.group, kind.plural).wire for kind in kinds]
    }
    if bindable:
        claim: dict[str, JSON] = {
            "group": SECRET.group,
            "resource": SECRET.plural,
            "version": SECRET.version,
            "owner": keys.OWNER_PROVIDER,
            "labels": {keys.OSB_SERVICE: named.service},
        }
        spec["claims"] = [claim]
    head: dict[str, JSON] = {
        "apiVersion": _FLEET,
        "kind": "Template",
        "metadata": {"name": named.template},
    }
    return {**head, "spec": spec}
