"""Plans the objects of a whole app cluster: its space, its kubeconfigs, its konnector."""

import ipaddress
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final
from urllib.parse import urlsplit

from reconciler import api
from reconciler.core import keys, manifest, names, refs
from reconciler.core.decision import FieldChange
from reconciler.core.manifest import Manifest
from reconciler.core.refs import Ref
from reconciler.fleet.compile import cluster_objects
from reconciler.fleet.values import AppCluster, ControlPlane, Unit
from reconciler.fleet.wanted import Rule, Wanted
from reconciler.planning import objects, placement
from reconciler.planning.changes import Action, Change, Step, Verb
from reconciler.planning.placement import LOOKED_AT
from reconciler.planning.site import Index, Site

_KONNECTOR_STEP: Final = 7
_KUBECONFIG: Final = "/data/kubeconfig"
_ISSUED_ANEW: Final = manifest.KNOWN_AFTER_APPLY


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
    """Return the line that notes the facts of the cluster's credentials, if they are not noted."""
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
    own = site.control_plane.get(refs.SECRET, placed.kubeconfig_namespace, placed.kubeconfig_name)
    facts = None if own is None else api.kubeconfig_facts_of(own)
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
    """Yield our APIServiceBindings that lack the facts of their Secret.

    The line that writes a Secret has it noted, too.
    """
    written = {change.ref for change in changes if change.acts}
    if not site.is_direct or site.app.blind:
        return
    source = _source_after_apply(site)
    for binding in placement.own_bindings(site):
        ref = Ref(site.app.name, refs.SECRET, *api.secret_of(binding))
        secret = None if ref in written else site.app.at(ref)
        facts = None if secret is None else api.mirrored_facts(secret, source)
        noted = manifest.annotations_of(binding).get(keys.CREDENTIAL, "")
        if facts is None:
            continue
        if noted != api.credential_note(facts, salt):
            yield site.app.ref(api.API_SERVICE_BINDING, binding)


def address_warnings(site: Site, needs: Sequence[Change]) -> set[str]:
    """Warn where a kubeconfig that would be made leads nowhere from the other side."""
    made = any(
        change.action is Action.CREATE and change.wanted and change.wanted.kubeconfig
        for change in needs
    )
    address, target = site.placement.address, _target(site)
    local = address is not None and _is_local(urlsplit(address.server).hostname or "")
    if not made or address is None or target.endpoint or not local:
        return set()
    return {
        f"{target.name} ({target.origin}): its kubeconfig will lead to {address.server}, which "
        "other clusters may not reach; set spec.endpoint to an address that they do"
    }


def _is_local(host: str) -> bool:
    """Return whether a host means this machine, or is known inside one cluster only."""
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
    if live is None and (left := index.seen.bodies.get(wanted.ref)):
        return (replace(draft, action=Action.BLOCKED, reason=manifest.get_text(left, "message")),)
    match wanted.rule:
        case Rule.CREATE_ONLY:
            return (_create_only(site, draft, live, wanted),)
        case Rule.KUBECONFIG:
            return (_kubeconfig(site, draft, live, wanted),)
        case Rule.OWNED | Rule.REQUEST:
            if live is not None and _is_foreign_right(site, live, wanted):
                # Narrowing what a running konnector may do would stop it.
                return (replace(draft, reason="made by another: its rights are left alone"),)
            return objects.owned_changes(draft, live, wanted, fleet=site.fleet.name)


def _is_there(site: Site, wanted: Wanted) -> bool:
    """Return whether an unread Secret is there, as far as its owner shows.

    The account in an app cluster is made before the AppClusterBinding is ours.
    """
    live = site.control_plane.at(site.carrier)
    in_app = wanted.ref.cluster == site.app.name
    if manifest.get_text(wanted.manifest, "type") == api.SERVICE_ACCOUNT_TOKEN:
        return not _is_token_lost(site)
    if site.carrier.kind == api.CLUSTER_BINDING or not in_app:
        return True
    return live is not None and site.owns(live)


def _widened(wanted: Wanted, live: Manifest) -> Wanted:
    """Return the konnector's role, of whichever mode, with its present rules."""
    if wanted.ref.kind != refs.CLUSTER_ROLE:
        return wanted
    stated = manifest.get_maps(wanted.manifest, "rules")
    kept = [rule for rule in manifest.get_maps(live, "rules") if rule not in stated]
    return replace(wanted, manifest=manifest.put(wanted.manifest, [*stated, *kept], "rules"))


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
    """Rewrite K, which klutchctl makes, where it differs from its future source.

    A konnector that sends heartbeats tries a new address before it mirrors that: no other is to
    cut it off, so an apply waits for it. It mirrors nothing any more once its token is gone.
    """
    source = _source_after_apply(site) if wanted.kubeconfig is not None else None
    if wanted.kubeconfig is None or source is None:
        return draft
    # What is noted says already only what the source decides.
    own = site.app.blind or api.is_mirrored(live)
    old = api.kubeconfig_facts_of(live) if own else api.mirrored_facts(live, source)
    fields = _ways_apart(old, source)
    if not fields:
        return draft
    if old is not None and not own:  # its address stays
        wanted = replace(wanted, kubeconfig=replace(wanted.kubeconfig, server="", ca=""))
    return replace(
        draft,
        action=Action.UPDATE,
        reason=_why_mended(site, old, fields),
        fields=fields,
        after=wanted.manifest,
        wanted=wanted,
    )


def _why_mended(site: Site, old: api.KubeconfigFacts | None, fields: Sequence[FieldChange]) -> str:
    """Return the fault of K, the program that repairs it, and the time."""
    if old is None:
        return "contains no kubeconfig; apply writes it"
    if not is_new_address(fields):
        return "its token is revoked; apply writes the present one"
    if site.placement.space in site.control_plane.seen.silent:
        return "leads to the old address, and no konnector sends heartbeats; apply writes the new"
    if any(map(api.reports_cut_off, placement.own_bindings(site))):
        return "leads to the old address, by which its konnector is cut off; apply writes the new"
    return "leads to the old address; its konnector tries the new one, then writes it: apply waits"


def is_new_address(fields: Sequence[FieldChange]) -> bool:
    """Return whether a kubeconfig changes in nothing but where its server is found."""
    return {one.path for one in fields} <= {f"{_KUBECONFIG}/{name}" for name in ("ca", "server")}


def _source_after_apply(site: Site) -> api.KubeconfigFacts | None:
    """Return the future kubeconfig in the space; None where that is not known."""
    placed = site.placement
    live = site.control_plane.get(refs.SECRET, placed.kubeconfig_namespace, placed.kubeconfig_name)
    if live is None or objects.obstacle(live, fleet=site.fleet.name):
        return None
    facts = api.kubeconfig_facts_of(live)
    return None if facts is None else _after_apply(site, live, facts)


def _kubeconfig(site: Site, draft: Change, live: Manifest | None, wanted: Wanted) -> Change:
    """Compare the target and the user of a live kubeconfig, not its bytes."""
    if live is None:
        return replace(draft, action=Action.CREATE, reason="new", after=wanted.manifest)
    if refused := objects.obstacle(live, fleet=site.fleet.name):
        return replace(draft, action=Action.BLOCKED, reason=refused)
    facts = api.kubeconfig_facts_of(live)
    if facts is None:
        fields: tuple[FieldChange, ...] = (FieldChange(_KUBECONFIG, "unusable", "a kubeconfig"),)
    else:
        fields = _ways_apart(facts, _after_apply(site, live, facts))
    if not fields:
        return draft
    lost = {one.path: one.after for one in fields} == {f"{_KUBECONFIG}/token": _ISSUED_ANEW}
    reason = "its token is gone" if lost else "leads to another address than the files name"
    return replace(draft, action=Action.UPDATE, reason=reason, fields=fields, after=wanted.manifest)


def _after_apply(site: Site, live: Manifest, facts: api.KubeconfigFacts) -> api.KubeconfigFacts:
    """Return the future of the live kubeconfig that klutchctl writes.

    What the files leave open stays as it is: a kubeconfig that works is not rewritten.
    """
    target = _target(site)
    return replace(
        facts,
        server=target.endpoint or facts.server,
        ca_digest=api.ca_digest(target.ca) if target.ca else facts.ca_digest,
        # Its namespace means nothing in mode AppClusterBinding.
        namespace=site.placement.space if site.is_direct else facts.namespace,
        token_digest=_issued(site, live) or facts.token_digest,
    )


def _issued(site: Site, kubeconfig: Manifest) -> str:
    """Return the digest of the token that belongs into a kubeconfig; "" where it is not known.

    Another's identity is another's to change.
    """
    ours = site.owns(kubeconfig)
    if site.control_plane.blind:
        ours = site.owns(site.control_plane.at(site.carrier) or {})
    if not site.is_direct and not ours:
        return ""
    index, *account = _account(site)
    token = index.get(refs.SECRET, *account)
    issued = None if token is None else api.service_account_facts_of(token)
    if issued is not None:
        return issued.token_digest
    return _ISSUED_ANEW if ours and _is_token_lost(site) else ""


def _account(site: Site) -> tuple[Index, str, str]:
    """Return where the account of a kubeconfig is, and so its token, which has the same name."""
    if site.is_direct:
        return site.control_plane, site.placement.space, names.BINDER
    return site.app, names.KLUTCH_NAMESPACE, names.AGENTLESS_SERVICE_ACCOUNT


def _is_token_lost(site: Site) -> bool:
    """Return whether the account of a kubeconfig has no token, as far as can be read.

    Kubernetes deletes the token of an account that is gone. Else a plan that reads no Secret goes
    by what the konnector reports. That only has an apply look: it compares with the token itself.
    """
    index, *account = _account(site)
    if index.get(refs.SERVICE_ACCOUNT, *account) is None or not index.blind:
        return True
    return site.is_direct and site.app.once(
        "refused", lambda _: any(map(api.reports_refusal, placement.own_bindings(site)))
    )


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
        FieldChange(f"{_KUBECONFIG}/{name}", before.get(name), after)
        for name, after in sorted(api.kubeconfig_value(meant).items())
        if name != "tls-server-name" and before.get(name) != after
    )
