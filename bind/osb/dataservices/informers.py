"""Informers of the kinds of provider-anynines, and their indexes."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from bind.osb.dataservices import managed
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
        common: dict[str, Index] = {
            UID: lambda live: [manifest.uid_of(live)],
            CONFIG: lambda live: [config_name(live)],
            CLAIM: _claim,
        }
        itself: dict[str, Index] = {INSTANCE: lambda live: [instance_id(live)]}
        self.instances = self._view(managed.SERVICE_INSTANCE, common | itself)
        of: dict[str, Index] = {SOURCE: _source, INSTANCE: lambda live: [instance_at(live)]}
        related = common | of
        self.bindings = self._view(managed.SERVICE_BINDING, related)
        self.backups = self._view(managed.BACKUP, related)
        self.restores = self._view(managed.RESTORE, related)
        self.configs = self._view(managed.PROVIDER_CONFIG, {})
        used: dict[str, Index] = {
            CONFIG: lambda usage: [manifest.get_text(usage, "providerConfigRef", "name")]
        }
        self.usages = self._view(managed.PROVIDER_CONFIG_USAGE, used)

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


def instance_at(live: Manifest) -> str:
    """Return the id of an instance that a status states, "" where it states none."""
    return manifest.get_text(live, "status", "atProvider", "instanceId")


def instance_id(live: Manifest) -> str:
    """Return the id that a ServiceInstance has at its broker."""
    return instance_at(live) or manifest.uid_of(live)
