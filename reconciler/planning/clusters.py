"""Plans the objects of a whole app cluster: its space, its kubeconfigs, its konnector."""

import ipaddress
from collections.abc import Iterator, Sequence
from dataclasses import replace
from urllib.parse import urlsplit

from reconciler import api
from reconciler.core import keys, manifest, names, refs
from reconciler.core.decision import FieldChange
from reconciler.core.live import Address
from reconciler.core.manifest import Manifest
from reconciler.core.refs import Ref
from reconciler.fleet.compile import cluster_objects
from reconciler.fleet.values import AppCluster, ControlPlane, Unit
from reconciler.fleet.wanted import Rule, Wanted
from reconciler.planning import objects, placement
from reconciler.planning.changes import Action, Change, Step, Verb
from reconciler.planning.placement import LOOKED_AT
from reconciler.planning.site import Index, Site

_KONNECTOR_STEP = 7


def plan_cluster(site: Site, units: Sequence[Unit], *, keeps_rights: bool) -> tuple[Change, ...]:
    """Return the lines for everything that the cluster needs once, in order.

    `keeps_rights`: the konnector keeps those that it has, for units beside `units` that stay bound.
    """
    changes = tuple(
        change
        for wanted in cluster_objects(site.fleet, site.cluster, site.placement, units=units)
        for change in _changes(site, wanted, keeps_rights=keeps_rights)
    )
    return changes + _credentials(site, changes)


def _credentials(site: Site, changes: Sequence[Change]) -> tuple[Change, ...]:
    """Return the line about what the cluster's credentials are, where that is not noted."""
    live, placed = site.control_plane.at(site.carrier), site.placement
    if live is None or objects.obstacle(live, fleet=site.fleet.name):
        return ()
    line = Change(
        cluster=site.app.name,
        subject="space",
        ref=site.carrier,
        action=Action.ADOPT,
        reason=LOOKED_AT,
        origin=site.cluster.origin,
    )
    if site.control_plane.blind:
        return (line,) if site.undecided else ()
    held = site.control_plane.get(refs.SECRET, placed.kubeconfig_namespace, placed.kubeconfig_name)
    facts = None if held is None else api.kubeconfig_facts_of(held)
    written = any(change.acts and change.wanted and change.wanted.kubeconfig for change in changes)
    noted = manifest.annotations_of(live).get(keys.CREDENTIAL, "")
    unnoted = tuple(_unnoted_bindings(site, manifest.uid_of(live), changes))
    if facts and not written and noted != api.credential_note(facts, manifest.uid_of(live)):
        unnoted = (site.carrier, *unnoted)
    if not unnoted:
        return ()
    note = replace(
        line,
        action=Action.UPDATE,
        reason="what its kubeconfig is, for plans that may not read it",
        before=objects.before_digest(live, {}),
        uid=manifest.uid_of(live),
        steps=tuple(Step(Verb.NOTE, ref) for ref in unnoted),
    )
    return (note,)


def _unnoted_bindings(site: Site, salt: str, changes: Sequence[Change]) -> Iterator[Ref]:
    """Yield our APIServiceBindings that do not say what the Secret is which they name.

    While a konnector sends heartbeats it mirrors the source, and what they say is not compared. The
    line that writes a Secret has it noted, too.
    """
    written = {change.ref for change in changes if change.acts}
    if not site.is_direct or site.app.blind:
        return
    silent = site.placement.space in site.control_plane.seen.silent
    for binding in filter(site.owns, placement.bindings(site.app)):
        ref = Ref(site.app.name, refs.SECRET, *placement.secret_of(binding))
        secret = None if ref in written else site.app.at(ref)
        facts = None if secret is None else api.kubeconfig_facts_of(secret)
        noted = manifest.annotations_of(binding).get(keys.CREDENTIAL, "")
        if facts is None or (noted and not silent):
            continue
        if noted != api.credential_note(facts, salt):
            yield site.app.ref(api.API_SERVICE_BINDING, binding)


def address_warnings(site: Site, needs: Sequence[Change]) -> set[str]:
    """Warn where a kubeconfig that would be made leads nowhere from the other side."""
    made = any(
        change.action is Action.CREATE and change.wanted and change.wanted.kubeconfig
        for change in needs
    )
    if not made or not site.placement.address:
        return set()
    return {_address_warning(_target(site), site.placement.address)} - {""}


def _address_warning(target: ControlPlane | AppCluster, address: Address) -> str:
    """Return a sentence where a kubeconfig would lead to ourselves only, else ""."""
    if target.endpoint or not _is_local(urlsplit(address.server).hostname or ""):
        return ""
    return (
        f"{target.name} ({target.origin}): its kubeconfig will lead to {address.server}, which "
        "other clusters may not reach; set spec.endpoint to an address that they do"
    )


def _is_local(host: str) -> bool:
    """Tell whether a host means this machine, or is known inside one cluster only."""
    if host == "localhost" or host.endswith((".localhost", ".svc", ".cluster.local")):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _changes(site: Site, wanted: Wanted, *, keeps_rights: bool) -> tuple[Change, ...]:
    index = site.app if wanted.ref.cluster == site.app.name else site.control_plane
    live = index.at(wanted.ref)
    if keeps_rights and live is not None:
        wanted = _widened(wanted, live)
    return tuple(objects.sealed(one, live, wanted) for one in _decided(site, wanted, live, index))


def _decided(site: Site, wanted: Wanted, live: Manifest | None, index: Index) -> tuple[Change, ...]:
    draft = objects.draft_of(wanted, live, _subject(wanted))
    # What is noted of it, but not on the carrier, anybody may have written (trust.md T2).
    known = live is not None and not (index is site.control_plane and site.undecided)
    unread = wanted.ref.kind == refs.SECRET and not known and index.blind
    if unread and site.control_plane.at(site.carrier) is not None and _is_there(site, wanted):
        return (replace(draft, reason=LOOKED_AT) if site.undecided else draft,)
    match wanted.rule:
        case Rule.CREATE_ONLY:
            return (_create_only(site, draft, live, wanted),)
        case Rule.KUBECONFIG:
            return (_kubeconfig(site, draft, live, wanted, index),)
        case Rule.OWNED | Rule.REQUEST:
            if live is not None and _is_foreign_right(site, live, wanted):
                # Narrowing what a running konnector may do would stop it.
                return (replace(draft, reason="made by another: its rights are left alone"),)
            return objects.owned_changes(draft, live, wanted, fleet=site.fleet.name)


def _is_there(site: Site, wanted: Wanted) -> bool:
    """Tell whether a Secret that was not read is there, as far as what it belongs to tells.

    The account in an app cluster is made before the AppClusterBinding is ours.
    """
    live = site.control_plane.at(site.carrier)
    in_app = wanted.ref.cluster == site.app.name
    if site.carrier.kind == api.CLUSTER_BINDING or not in_app:
        return True
    return live is not None and site.owns(live)


def _widened(wanted: Wanted, live: Manifest) -> Wanted:
    """Return the konnector's role, whichever mode makes it, with what it holds already."""
    if wanted.ref.kind != refs.CLUSTER_ROLE:
        return wanted
    stated = manifest.get_maps(wanted.manifest, "rules")
    held = [rule for rule in manifest.get_maps(live, "rules") if rule not in stated]
    return replace(wanted, manifest=manifest.put(wanted.manifest, [*stated, *held], "rules"))


def _is_foreign_right(site: Site, live: Manifest, wanted: Wanted) -> bool:
    rights = (refs.SERVICE_ACCOUNT, refs.CLUSTER_ROLE, refs.CLUSTER_ROLE_BINDING)
    ours = objects.is_ours(live, fleet=site.fleet.name, cluster=wanted.cluster)
    return wanted.step == _KONNECTOR_STEP and wanted.ref.kind in rights and not ours


def _subject(wanted: Wanted) -> str:
    if wanted.step == _KONNECTOR_STEP:
        return names.KONNECTOR
    return "cluster" if wanted.ref.cluster == wanted.cluster else "space"


def _create_only(site: Site, draft: Change, live: Manifest | None, wanted: Wanted) -> Change:
    if live is not None and manifest.is_deleting(live):
        return replace(draft, action=Action.BLOCKED, reason=f"it {objects.BEING_DELETED}")
    if live is not None:
        return _mended(site, draft, live, wanted)
    installs = site.app.get(refs.DEPLOYMENT, names.KLUTCH_NAMESPACE, names.KONNECTOR)
    if wanted.ref.kind == refs.CRD and installs is not None:
        return replace(draft, reason="waiting: the konnector there installs it")
    return replace(draft, action=Action.CREATE, reason="new", after=wanted.manifest)


def _mended(site: Site, draft: Change, live: Manifest, wanted: Wanted) -> Change:
    """Rewrite K where it leads elsewhere than its source, and no konnector can mirror that.

    While one sends heartbeats it mirrors the source, and is the only writer (mapping.md 3, row 5).
    """
    placement = site.placement
    source = site.control_plane.get(
        refs.SECRET, placement.kubeconfig_namespace, placement.kubeconfig_name
    )
    silent = placement.space in site.control_plane.seen.silent
    if wanted.kubeconfig is None or source is None or not silent:
        return draft
    meant, held = api.kubeconfig_facts_of(source), api.kubeconfig_facts_of(live)
    if meant is None or held == meant:
        return draft
    fields = _ways_apart(held, meant)
    reason = "differs from its source, and the konnector that would mirror it is silent"
    after = wanted.manifest
    return replace(draft, action=Action.UPDATE, reason=reason, fields=fields, after=after)


def _kubeconfig(
    site: Site, draft: Change, live: Manifest | None, wanted: Wanted, index: Index
) -> Change:
    """Compare where a live kubeconfig leads, and as whom, not its bytes."""
    if live is None:
        return replace(draft, action=Action.CREATE, reason="new", after=wanted.manifest)
    refused = objects.obstacle(live, fleet=site.fleet.name)
    if refused:
        return replace(draft, action=Action.BLOCKED, reason=refused)
    fields = _ways(site, live, index)
    if not fields:
        return draft
    reason = "leads elsewhere than the files say"
    return replace(draft, action=Action.UPDATE, reason=reason, fields=fields, after=wanted.manifest)


def _ways(site: Site, live: Manifest, index: Index) -> tuple[FieldChange, ...]:
    facts = api.kubeconfig_facts_of(live)
    if facts is None:
        return (FieldChange("/data/kubeconfig", "unusable", "a kubeconfig"),)
    target = _target(site)
    if site.is_direct:
        namespace = site.placement.space
        token = index.get(refs.SECRET, namespace, names.BINDER)
    else:
        # Its namespace means nothing in this mode, and another's identity is another's to change.
        namespace = facts.namespace
        bind, account = names.KLUTCH_NAMESPACE, names.AGENTLESS_SERVICE_ACCOUNT
        ours = site.owns(live)
        token = site.app.get(refs.SECRET, bind, account) if ours else None
    issued = None if token is None else api.service_account_facts_of(token)
    # What the files leave open stays as it is: a kubeconfig that works is not rewritten.
    meant = replace(
        facts,
        server=target.endpoint or facts.server,
        ca_digest=api.ca_digest(target.ca) if target.ca else facts.ca_digest,
        namespace=namespace,
        token_digest=issued.token_digest if issued else facts.token_digest,
    )
    return _ways_apart(facts, meant)


def _target(site: Site) -> ControlPlane | AppCluster:
    """Return the document of the cluster that the kubeconfig leads to."""
    cluster = site.cluster
    return site.fleet.control_planes[cluster.control_plane] if site.is_direct else cluster


def _ways_apart(
    live: api.KubeconfigFacts | None, meant: api.KubeconfigFacts
) -> tuple[FieldChange, ...]:
    """Return how a live kubeconfig differs from the one that is meant.

    A TLS name belongs to the server that it comes with.
    """
    before = {} if live is None else api.kubeconfig_value(live)
    return tuple(
        FieldChange(f"/data/kubeconfig/{name}", before.get(name), after)
        for name, after in sorted(api.kubeconfig_value(meant).items())
        if name != "tls-server-name" and before.get(name) != after
    )
