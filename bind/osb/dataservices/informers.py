"""Informers of the kinds of provider-anynines, and their indexes."""

from typing import Final

from bind.osb.dataservices import managed
from bind.osb.dataservices.managed import config_name
from bind.osb.informers import Views
from reconciler.core import manifest
from reconciler.core.manifest import Manifest
from reconciler.core.refs import ObjectKey
from reconciler.kube.cluster import Cluster
from reconciler.kube.informer import Informer
from reconciler.kube.store import Index, Store

UID: Final = "uid"
CONFIG: Final = "name of the ProviderConfig"
CLAIM: Final = "the place of the claim"
SOURCE: Final = "the place of the claim that it is of"
INSTANCE: Final = "id of the instance"


class Informers(Views):
    """The views, by kind."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        common: dict[str, Index] = {
            UID: lambda live: [manifest.uid_of(live)],
            CONFIG: lambda live: [config_name(live)],
            CLAIM: lambda live: [managed.composed_for(live)],
        }
        itself: dict[str, Index] = {INSTANCE: lambda live: [instance_id(live)]}
        self.instances = self._kept(
            Informer(cluster, managed.SERVICE_INSTANCE, indexes=common | itself)
        )
        of: dict[str, Index] = {
            SOURCE: lambda live: [managed.composed_for(live)._replace(name=source_name(live))],
            INSTANCE: lambda live: [instance_at(live)],
        }
        related = common | of
        self.bindings = self._kept(Informer(cluster, managed.SERVICE_BINDING, indexes=related))
        self.backups = self._kept(Informer(cluster, managed.BACKUP, indexes=related))
        self.restores = self._kept(Informer(cluster, managed.RESTORE, indexes=related))
        self.configs = self._kept(Informer(cluster, managed.PROVIDER_CONFIG, indexes={}))
        used: dict[str, Index] = {
            CONFIG: lambda usage: [manifest.get_text(usage, "providerConfigRef", "name")]
        }
        self.usages = self._kept(Informer(cluster, managed.PROVIDER_CONFIG_USAGE, indexes=used))

    def of_claim(self, view: Store, live: Manifest, name: str) -> tuple[Manifest | None, str]:
        """Return the object of a claim beside that of another object, or why there is not one."""
        space = managed.composed_for(live).namespace
        found = [key for key in view.keys_by(CLAIM, ObjectKey(space, name)) if self._get(view, key)]
        if len(found) == 1:
            return self._get(view, found[0]), ""
        what = f"{view.kind} of the claim {space}/{name}"
        if found:
            return None, f"There are {len(found)} objects of kind {what}"
        return None, f"There is no {what}"

    def _get(self, view: Store, key: ObjectKey) -> Manifest | None:
        return self._recents[view].get(*key)


def source_name(live: Manifest) -> str:
    wanted = manifest.get_map(live, "spec", "forProvider")
    return manifest.get_text(wanted, "instanceName") or manifest.get_text(wanted, "backupName")


def instance_at(live: Manifest) -> str:
    """Return the id of an instance that a status states, "" where it states none."""
    return manifest.get_text(live, "status", "atProvider", "instanceId")


def instance_id(live: Manifest) -> str:
    return instance_at(live) or manifest.uid_of(live)
