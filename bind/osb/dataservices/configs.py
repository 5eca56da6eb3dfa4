"""Reconciles ProviderConfigs: connections to brokers and backup managers, and their health.

The first part of the file has the informers of all these kinds.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

from bind.osb.connections import UNREAD, BrokerConnections, Connection
from bind.osb.dataservices import managed, provider_config
from bind.osb.dataservices.connection import decoded
from bind.osb.dataservices.managed import composed_for, config_name
from bind.osb.settings import Settings
from reconciler.api.osb import NEWEST_API, BrokerSpec
from reconciler.broker.client import BrokerAddress, Observe, address_of
from reconciler.controller.controller import Queue
from reconciler.controller.executor import Executor, observed
from reconciler.controller.manager import ClusterInformers
from reconciler.controller.tasks import Clock
from reconciler.core import keys, manifest
from reconciler.core.decision import Decision
from reconciler.core.errors import ConfigError, NotServed
from reconciler.core.manifest import Manifest
from reconciler.core.refs import SECRET, Kind, ObjectKey, Ref
from reconciler.kube.cluster import Cluster
from reconciler.kube.store import Index, Store
from reconciler.kube.turns import NOBODY
from reconciler.web.outbound import Answer

UID: Final = "uid"
CONFIG: Final = "name of the ProviderConfig"
_GUARDED: Final = "name of the ProviderConfig that lets it go"
CLAIM: Final = "the place of the claim"
SOURCE: Final = "the place of the claim that it is of"
INSTANCE: Final = "id of the instance"
_SERVED: Final = ("None", "Secret")


class Informers(ClusterInformers):
    """The views, by kind."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        common: dict[str, Index] = {
            UID: lambda live: [manifest.uid_of(live)],
            CONFIG: lambda live: [config_name(live)],
            _GUARDED: lambda live: [config_name(live)] if managed.has_finalizer(live) else [],
            CLAIM: lambda live: [composed_for(live)],
        }
        itself: dict[str, Index] = {INSTANCE: lambda live: [instance_id(live)]}
        self.instances = self._view(managed.SERVICE_INSTANCE, common | itself)
        of: dict[str, Index] = {
            SOURCE: lambda live: [composed_for(live)._replace(name=source_name(live))],
            INSTANCE: lambda live: [instance_at(live)],
        }
        related = common | of
        self.bindings = self._view(managed.SERVICE_BINDING, related)
        self.backups = self._view(managed.BACKUP, related)
        self.restores = self._view(managed.RESTORE, related)
        self.configs = self._view(managed.PROVIDER_CONFIG, {})
        used: dict[str, Index] = {
            CONFIG: lambda usage: [manifest.get_text(usage, "providerConfigRef", "name")]
        }
        self.usages = self._view(managed.PROVIDER_CONFIG_USAGE, used)

    def _view(self, kind: Kind, indexes: Mapping[str, Index], **more: Any) -> Store:
        # A package takes its CRDs along one by one, and a ServiceBroker needs none of them.
        return super()._view(kind, indexes, optional=(NotServed,), **more)

    def users(self, name: str) -> int:
        """Return how many need a ProviderConfig: usages may go before their objects do."""
        views = (self.instances, self.bindings, self.backups, self.restores)
        used = len(self.usages.keys_by(CONFIG, name))
        return max(used, sum(len(view.keys_by(_GUARDED, name)) for view in views))

    def of_claim(self, view: Store, live: Manifest, name: str) -> tuple[Manifest | None, str]:
        """Return the object of a claim beside that of another object, or why there is not one."""
        space = composed_for(live).namespace
        found = [key for key in view.keys_by(CLAIM, ObjectKey(space, name)) if self._get(view, key)]
        if len(found) == 1:
            return self._get(view, found[0]), ""
        subject = f"{view.kind} of the claim {space}/{name}"
        if found:
            return None, f"There are {len(found)} objects of kind {subject}"
        return None, f"There is no {subject}"

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


class ProviderConfigs(BrokerConnections):
    """The reconciler of ProviderConfigs, by name: whether they are well, and how many need them."""

    reads = False  # a backup manager has none

    def __init__(
        self,
        informers: Informers,
        executor: Executor,
        settings: Settings,
        *,
        clock: Clock,
        observer: Callable[[str], Observe],
    ) -> None:
        # A ServiceBroker may have the same name.
        super().__init__(
            settings,
            clock=clock,
            observer=lambda name: observer(f"dataservices/{name}"),
            opened=self._open,
        )
        self._informers, self._executor = informers, executor
        self._recent = informers.recent(informers.configs)
        self._users: list[Callable[[str], None]] = []

    def follow(self, user: Callable[[str], None]) -> None:
        """Call this with the name of a ProviderConfig to have its objects reconciled."""
        self._users.append(user)

    def _open(self, name: str) -> None:
        for user in self._users:
            user(name)

    def subscribe(self, queue: Queue[str]) -> None:
        """Have the ProviderConfigs enqueued that a change concerns."""
        self._look = queue.enqueue
        self._informers.configs.subscribe_keys(lambda key: queue.enqueue(key.name))
        self._informers.usages.subscribe(CONFIG, lambda name: queue.enqueue(str(name)))

    def known(self, config: Manifest) -> Connection | None:
        """Return the connection of a ProviderConfig as it is now; None until that was tried."""
        found = self.connection(manifest.name_of(config))
        return found if found and found.fault != UNREAD and found.spec == _spec(config) else None

    async def reconcile(self, name: str) -> timedelta | None:
        """Connect, read the catalogue when that is due, and write the status.

        Raises ClusterErrors and Stopped.
        """
        live = self._recent.get("", name)
        if live is None or self._stop.is_set():
            await self._close(name)
            return None
        connection = await self._connected(live, _spec(live))
        cluster, now = self._informers.cluster.name, self._executor.now
        seen = provider_config.Seen(cluster, live, now(), self._informers.users(name))
        step = provider_config.next_step(seen)
        while not isinstance(step, Decision):
            async with connection.gate.turn(NOBODY):
                answer = await connection.ask(step)
            status = answer.status if isinstance(answer, Answer) else 0
            problem = "" if isinstance(answer, Answer) else answer.problem
            seen = replace(seen, now=now())
            step = provider_config.answered(seen, step, status, problem)
        about = observed(self._recent, live)
        again = await self._executor.execute(step, about, recents=[self._recent])
        return min(again or timedelta.max, self._again(connection))

    async def _address(self, live: Manifest, spec: BrokerSpec) -> BrokerAddress:
        credentials = manifest.get_map(live, "spec", "providerCredentials")
        tls = manifest.get_map(live, "spec", "tls")
        source, stated = manifest.get_text(credentials, "source"), dict[str, str]()
        if source not in _SERVED:
            raise ConfigError(f"credentials of source {source} are not served", where=spec.secret)
        if source == "Secret":
            for key in ("username", "password"):
                ref = manifest.get_map(credentials, key, "secretRef")
                stated[key] = (await self._text(ref, spec.secret)).strip()
        if ref := manifest.get_map(tls, "caBundleSecretRef"):
            stated["ca.crt"] = await self._text({"key": "ca.crt", **ref}, spec.secret)
        if manifest.get_text(tls, "overrideServerName"):
            raise ConfigError("tls.overrideServerName is not served", where=spec.secret)
        return address_of(spec, {"stringData": stated})

    async def _text(self, ref: Manifest, where: str) -> str:
        names = [manifest.get_text(ref, part) for part in ("namespace", "name", "key")]
        if not all(names):
            raise ConfigError("it names no key of a Secret for its credentials", where=where)
        namespace, name, key = names
        cluster = self._informers.cluster
        secret = await cluster.get(Ref(cluster.name, SECRET, namespace, name))
        if secret is None:
            raise ConfigError(f"its Secret {namespace}/{name} is not there", where=where)
        if not (found := decoded(manifest.get_text_map(secret, "data").get(key, ""))):
            raise ConfigError(f"its Secret {namespace}/{name} has no text {key}", where=where)
        return found


def _spec(config: Manifest) -> BrokerSpec:
    """Return the broker of a ProviderConfig, or its backup manager."""
    name = manifest.name_of(config)
    return BrokerSpec(
        name,
        uid=manifest.uid_of(config),
        generation=manifest.get_int(config, "metadata", "generation") or 0,
        url=manifest.get_text(config, "spec", "url"),
        secret=f"ProviderConfig {name}",
        api_version=manifest.annotations_of(config).get(keys.OSB_API_VERSION, NEWEST_API),
        insecure=manifest.get_bool(config, "spec", "tls", "insecureSkipVerify"),
    )
