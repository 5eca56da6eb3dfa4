"""Informers of the kinds of provider-anynines, and their indexes."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from bind.osb.dataservices import kinds
from bind.osb.dataservices.managed import config_name
from reconciler.core import keys, manifest
from reconciler.core.manifest import Manifest
from reconciler.core.refs import Kind, ObjectKey
from reconciler.kube.cluster import Cluster
from reconciler.kube.informer import Informer, ReadYourWrites
from reconciler.kube.store import Index, Store

UID: Final = "uid"
CONFIG: Final = "name of the ProviderConfig"
CLAIM: Final = "the place of the claim"
SOURCE: Final = "the place of the claim that it is of"
INSTANCE: Final = "id of the instance"


class Informers:
    """The views, by kind."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._recents: dict[Store, ReadYourWrites] = {}
        common: dict[str, Index] = {UID: _uid, CONFIG: _config, CLAIM: _claim}
        self.instances = self._view(kinds.SERVICE_INSTANCE, common | {INSTANCE: _itself})
        related = common | {SOURCE: _source, INSTANCE: _instance}
        self.bindings = self._view(kinds.SERVICE_BINDING, related)
        self.backups = self._view(kinds.BACKUP, related)
        self.restores = self._view(kinds.RESTORE, related)
        self.configs = self._view(kinds.PROVIDER_CONFIG, {})
        self.usages = self._view(kinds.PROVIDER_CONFIG_USAGE, {CONFIG: _used})

    @property
    def informers(self) -> Sequence[Informer]:
        """What keeps the views."""
        return [recent.view for recent in self._recents.values()]

    def recent(self, view: Store) -> ReadYourWrites:
        """Return one of these views together with what was written of it just now."""
        return self._recents[view]

    def of_claim(self, view: Store, live: Manifest, name: str) -> tuple[Manifest | None, str]:
        """Return the object of a claim beside that of another object, or why there is not one."""
        space = manifest.labels_of(live).get(keys.CLAIM_NAMESPACE, "")
        found = [key for key in view.keys_by(CLAIM, ObjectKey(space, name)) if self._get(view, key)]
        if len(found) == 1:
            return self._get(view, found[0]), ""
        what = f"{view.kind} of the claim {space}/{name}"
        if found:
            return None, f"There are {len(found)} objects of kind {what}"
        return None, f"There is no {what}"

    def _get(self, view: Store, key: ObjectKey) -> Manifest | None:
        return self._recents[view].get(*key)

    def _view(self, kind: Kind, indexes: Mapping[str, Index]) -> Store:
        informer = Informer(self.cluster, kind, indexes=indexes)
        self._recents[informer.store] = ReadYourWrites(informer)
        return informer.store


def _uid(live: Manifest) -> Iterable[str]:
    return [manifest.uid_of(live)]


def _config(live: Manifest) -> Iterable[str]:
    return [config_name(live)]


def _used(usage: Manifest) -> Iterable[str]:
    return [manifest.get_text(usage, "providerConfigRef", "name")]


def _claim(live: Manifest) -> Iterable[ObjectKey]:
    labels = manifest.labels_of(live)
    return [ObjectKey(labels.get(keys.CLAIM_NAMESPACE, ""), labels.get(keys.CLAIM_NAME, ""))]


def source_name(live: Manifest) -> str:
    """Return the name of the claim that an object is of."""
    wanted = manifest.get_map(live, "spec", "forProvider")
    return manifest.get_text(wanted, "instanceName") or manifest.get_text(wanted, "backupName")


def _source(live: Manifest) -> Iterable[ObjectKey]:
    space = manifest.labels_of(live).get(keys.CLAIM_NAMESPACE, "")
    return [ObjectKey(space, source_name(live))]


def _instance(live: Manifest) -> Iterable[str]:
    return [manifest.get_text(live, "status", "atProvider", "instanceId")]


def instance_id(live: Manifest) -> str:
    """Return the id that a ServiceInstance has at its broker."""
    stated = manifest.get_text(live, "status", "atProvider", "instanceId")
    return stated or manifest.uid_of(live)


def _itself(live: Manifest) -> Iterable[str]:
    return [instance_id(live)]
