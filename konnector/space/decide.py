"""Decides the konnector's reports in its space, and when it takes a new kubeconfig. Pure.

ClusterBinding (protocol-konnector.md B): a kubeconfig that the provider renews comes into the app
cluster when it was seen to work, and never before: one that does not would shut the konnector out
for good (H20). Does not know how a kubeconfig is tried. What Secrets hold gets into no sentence.

APIServiceExport (C.5): Connected and ConsumerInSync, and beside them all that the app cluster says
of its CRD. Does not know what becomes of claims; ProviderInSync is the backend's.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from importlib import metadata
from typing import Final, Literal, TypeAlias

from konnector import APP_CLUSTER, CONTROL_PLANE
from konnector.kubeconfig import judge
from reconciler.api import (
    API_SERVICE_NAMESPACE,
    INTERVAL,
    is_mirrored,
    kubeconfig_content,
    reports_sync,
)
from reconciler.blueprints.objects import UNMARKED, Marks, build
from reconciler.core import conditions, decision, keys, manifest
from reconciler.core.conditions import Condition
from reconciler.core.decision import Apply, Decision, Patch, Step
from reconciler.core.manifest import JSON, Manifest
from reconciler.core.refs import SECRET, ObjectKey
from reconciler.core.times import format_duration, format_time, moment

# A beat is due after so long: often enough that one may get lost, and not so often that the
# original's backend takes it for a clock that runs ahead (B).
PULSE: Final = INTERVAL / 2
_SOON: Final = timedelta(seconds=1)
UNKNOWN: Final = "unknown"  # the version in the status of a build without one

_OF_A_DISTRIBUTION: Final = re.compile(
    r"([0-9]+\.[0-9]+\.[0-9]+)((a|b|rc)[0-9]+)?(\.post[0-9]+)?(\.dev[0-9]+)?(\+[a-z0-9.]+)?"
)

_Standing: TypeAlias = Literal["missing", "same", "old", "rerouted", "elsewhere"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterBindingView:
    """A ClusterBinding and the Secrets that belong together; each object whole, None if absent.

    `source` is the Secret in the space that the ClusterBinding names; `source_read`: whether it
    was looked for. `targets` are those in the app cluster that the bindings of this provider name.
    `in_use` is the identity of the kubeconfig that the provider is reached with at present
    (`judge.fingerprint`), `verdict` what came of trying the one of `to_probe`: None: not tried
    yet, "": it works, else why not, a sentence.
    `space_uid` is the uid of the space's Namespace, "" while that is not known. In control-plane
    mode, without a `source`, nothing is said or done about Secrets.
    """

    cluster_binding: Manifest = field(repr=False)
    control_plane_mode: bool = False
    source: Manifest | None = field(default=None, repr=False)
    source_read: bool = True
    targets: Mapping[ObjectKey, Manifest | None] = field(default_factory=dict, repr=False)
    in_use: str = ""
    verdict: str | None = None
    space_uid: str = ""


def beat(seen: ClusterBindingView, *, now: datetime, version: str | None) -> Decision:
    """Return the status of a beat; `again` is when the next one is due.

    `version` is what `konnector_version` returned. Nothing about Secrets in the app
    cluster holds up a beat: those are written by `mirror`.
    """
    status = manifest.get_map(seen.cluster_binding, "status")
    last = moment(manifest.get_text(status, "lastHeartbeatTime"))
    age = None if last is None else now - last
    fields: dict[str, JSON] = {
        "heartbeatInterval": format_duration(INTERVAL),
        "konnectorVersion": version or UNKNOWN,
    }
    again = PULSE
    if age is None or age >= PULSE or age < timedelta():
        fields["lastHeartbeatTime"] = format_time(now)
    else:
        again = PULSE - age
    new = {key: value for key, value in fields.items() if status.get(key) != value}
    return Decision(conditions=tuple(_conditions(seen, version)), fields=new, again=again)


def mirror(seen: ClusterBindingView) -> Decision:
    """Return the writes to the Secrets in the app cluster, each a task of its own.

    Only data is ever changed, and the annotation of ours added; a Secret that is missing is made.
    Left alone are: all of them, while the provider's kubeconfig is not known to work; those that
    differ from it in the server's address alone, if neither klutchctl nor a konnector wrote it, but
    somebody who knows the app cluster's network; and those that lead to another space, which are
    none of this provider's business.
    """
    source = seen.source
    content = _content(seen)
    if (
        source is None
        or not isinstance(content, bytes)
        or manifest.is_deleting(seen.cluster_binding)
    ):
        return Decision()
    works = judge.fingerprint(content) == seen.in_use or seen.verdict == ""
    if not works or _fault(seen, content):
        return Decision()
    targets = seen.targets.items()
    return decision.writes_each(
        _step(seen, source, content, place, live) for place, live in targets
    )


def to_probe(seen: ClusterBindingView) -> bytes | None:
    """Return the kubeconfig that has to be tried before it may be mirrored; None for none.

    One that is in use, or that would be written nowhere, needs no trial.
    """
    content = _content(seen)
    if not isinstance(content, bytes) or _fault(seen, content):
        return None
    if judge.fingerprint(content) == seen.in_use:
        return None
    found = {_standing(seen, content, one) for one in seen.targets.values()}
    return content if found & {"missing", "old"} else None


def source_place(cluster_binding: Manifest) -> ObjectKey:
    """Return where the Secret is that a ClusterBinding names."""
    name = manifest.get_text(cluster_binding, "spec", "kubeconfigSecretRef", "name")
    return ObjectKey(manifest.namespace_of(cluster_binding), name)


def _conditions(seen: ClusterBindingView, version: str | None) -> Iterator[Condition]:
    if version:
        yield conditions.true(conditions.VALID_VERSION)
    else:
        message = "This build of the konnector has no version."
        yield conditions.false(conditions.VERSION_PARSE_ERROR, message)
    if not seen.control_plane_mode and seen.source_read:
        yield from _secret_valid(seen)


def _secret_valid(seen: ClusterBindingView) -> Iterator[Condition]:
    subject = f"Provider secret {'/'.join(source_place(seen.cluster_binding))}"
    if seen.source is None:
        yield conditions.false(conditions.PROVIDER_SECRET_NOT_FOUND, f"{subject} not found")
        return
    content = _content(seen)
    fault = content if isinstance(content, str) else _fault(seen, content)
    if fault:
        kept = "the app cluster keeps the last one that was valid."
        message = f"{subject} {fault.rstrip('.')}; {kept}"
        yield conditions.false(conditions.PROVIDER_SECRET_INVALID, message)
    elif to_probe(seen) is None or seen.verdict == "":
        yield conditions.true(conditions.SECRET_VALID)
    elif seen.verdict is not None:
        message = (
            f"{subject} has a kubeconfig that does not work from here: "
            f"{seen.verdict.rstrip('.')}; the app cluster keeps the last one that did."
        )
        yield conditions.false(conditions.PROVIDER_SECRET_INVALID, message)


def _content(seen: ClusterBindingView) -> bytes | str:
    """Return the provider's kubeconfig, or why there is none."""
    if seen.control_plane_mode or seen.source is None:
        return "is not there"
    key = manifest.get_text(seen.cluster_binding, "spec", "kubeconfigSecretRef", "key")
    return kubeconfig_content(seen.source, key)


def _fault(seen: ClusterBindingView, content: bytes) -> str:
    return judge.fault(content, namespace=manifest.namespace_of(seen.cluster_binding))


def _standing(seen: ClusterBindingView, content: bytes, target: Manifest | None) -> _Standing:
    """Return how a Secret in the app cluster relates to the provider's kubeconfig."""
    if target is None:
        return "missing"
    current = kubeconfig_content(target, "")
    if current == content:
        return "same"
    namespace = None if isinstance(current, str) else judge.leads_to(current)
    if isinstance(current, str) or namespace is None:
        return "old"  # the present one is unusable
    if namespace != manifest.namespace_of(seen.cluster_binding):
        return "elsewhere"
    chosen = judge.same_but_for_server(current, content) and not is_mirrored(target)
    return "rerouted" if chosen else "old"


def _step(
    seen: ClusterBindingView,
    source: Manifest,
    content: bytes,
    place: ObjectKey,
    live: Manifest | None,
) -> Step | None:
    marks = {keys.SPACE_UID: seen.space_uid} if seen.space_uid else {}
    data = manifest.get_map(source, "data")
    if live is None:
        made = build(
            SECRET,
            place.name,
            namespace=place.namespace,
            marks=Marks(annotations=marks) if marks else UNMARKED,
            type=manifest.get_text(source, "type") or "Opaque",
            data=data,
        )
        # By apply, which needs no more than rights to this very name.
        return Apply(SECRET, made, APP_CLUSTER)
    standing = _standing(seen, content, live)
    if standing == "elsewhere" or manifest.is_deleting(live):
        return None
    change = (
        {} if standing == "rerouted" else decision.merge_diff(manifest.get_map(live, "data"), data)
    )
    # The guards judge the former owner of the space: it is recorded once only.
    noted = {} if keys.SPACE_UID in manifest.annotations_of(live) else marks
    if not (change or noted):
        return None
    metadata = decision.preconditions_of(live)
    if noted:
        metadata["annotations"] = noted
    body: dict[str, JSON] = {"metadata": metadata}
    if change:
        body["data"] = change
    return Patch(manifest.ref_of(APP_CLUSTER, SECRET, live), body)


def konnector_version(build: str) -> str | None:
    """Return `vX.Y.Z` of the version of a Python distribution (PEP 440); None where it is none."""
    found = _OF_A_DISTRIBUTION.fullmatch(build)
    return None if found is None else f"v{found[1]}"


VERSION: Final = konnector_version(metadata.version("klutchctl"))


def is_anothers(cluster_binding: Manifest | None, version: str | None = VERSION) -> bool:
    """Return whether another program was the last to serve a space."""
    last = manifest.get_text(cluster_binding, "status", "konnectorVersion")
    return last not in ("", version or UNKNOWN)


def void(cluster_binding: Manifest, mappings: Iterable[Manifest]) -> Decision:
    """Return the patches that take `uids-since` off where another program has served since.

    The original wipes annotations of what it writes. While there is anything to take off, that
    program's version has to stay: after a restart nothing else shows that it was there.
    """
    if not is_anothers(cluster_binding):
        return decision.NOTHING
    nothing: Manifest = {"annotations": {keys.UIDS_SINCE: None}}
    found = decision.writes_each(
        decision.modification(CONTROL_PLANE, API_SERVICE_NAMESPACE, one, metadata=nothing)
        for one in mappings
        if keys.UIDS_SINCE in manifest.annotations_of(one)
    )
    return replace(found, again=_SOON) if found.tasks else decision.NOTHING


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportView:
    """An APIServiceExport, whole, and the objects of its name; None where there is none.

    `binding` is the APIServiceBinding that belongs to this provider, `crd` the one in the app
    cluster, with its status. `syncing`: objects are synced for that binding, or will be.
    """

    export: Manifest = field(repr=False)
    binding: Manifest | None = field(default=None, repr=False)
    crd: Manifest | None = field(default=None, repr=False)
    syncing: bool = True


def export_status(seen: ExportView, *, now: datetime) -> Decision:
    """Return the status.

    The conditions of the CRD are somebody else's, so they come with their reasons and times; and
    without a CRD the last ones stay, and Ready is not summed up. So the whole list is a field.
    """
    if manifest.is_deleting(seen.export):
        return decision.NOTHING
    before = conditions.of(seen.export)
    after = before
    for one in _own(seen):
        after = conditions.set_condition(after, one, now=now)
    fields: dict[str, JSON] = {}
    if seen.crd is not None:
        after = conditions.copy_conditions(after, _of_crd(seen.crd))
        after = conditions.summarize(after, now=now)
        fields = _names_and_versions(seen.export, seen.crd)
    if after != before:
        fields["conditions"] = conditions.dump(after)
    return Decision(fields=fields)


def is_connected(export: Manifest | None) -> bool:
    """Return whether an export that stays reports that its objects are synced."""
    return export is not None and not manifest.is_deleting(export) and reports_sync(export)


def _own(seen: ExportView) -> Iterable[Condition]:
    if seen.binding is None or not seen.syncing:
        message = "No APIServiceBinding exists."
        yield conditions.false(conditions.BINDING_NOT_FOUND, message)
        yield conditions.false(conditions.CONSUMER_SYNC_NOT_APPLICABLE, message)
        return
    yield conditions.true(conditions.CONNECTED)
    in_sync = conditions.get(seen.binding, conditions.SCHEMA_IN_SYNC)
    if in_sync is None:
        message = (
            f"APIServiceBinding {manifest.name_of(seen.binding)} in the consumer cluster does not"
            " have a SchemaInSync condition."
        )
        yield conditions.false(conditions.CONSUMER_SYNC_UNKNOWN, message)
    else:
        yield replace(in_sync, type=conditions.CONSUMER_IN_SYNC, last_transition_time="", extra={})


def _of_crd(crd: Manifest) -> Iterable[Condition]:
    for one in conditions.of(crd):
        if one.type != conditions.READY:
            yield replace(one, severity="" if one.status == conditions.TRUE else conditions.ERROR)


def _names_and_versions(export: Manifest, crd: Manifest) -> dict[str, JSON]:
    """Return the new parts of what the app cluster serves, once it reports them."""
    wanted: dict[str, JSON] = {
        "acceptedNames": manifest.get_map(crd, "status", "acceptedNames"),
        "storedVersions": manifest.get_list(crd, "status", "storedVersions"),
    }
    reported = {key: value for key, value in wanted.items() if value}
    status = manifest.get_map(export, "status")
    return decision.merge_diff({key: status.get(key) for key in reported}, reported)
