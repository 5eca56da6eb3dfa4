"""The kinds of service brokers: ServiceBroker, BrokerRecord, and the generated kinds.

Accessors are tolerant, like the readers of `core.manifest`: an absent field reads as its default.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from reconciler.core import keys, manifest
from reconciler.core.documents import object_of
from reconciler.core.manifest import Manifest
from reconciler.core.names import MAX_LABEL
from reconciler.core.refs import Kind
from reconciler.core.times import span

OSB_GROUP: Final = "osb.klutchctl.dev"
SERVICE_BROKER: Final = Kind(OSB_GROUP, "v1alpha1", "ServiceBroker", "servicebrokers")
BROKER_RECORD: Final = Kind(OSB_GROUP, "v1alpha1", "BrokerRecord", "brokerrecords")
NEWEST_API: Final = "2.17"
_MOST_MEMORY: Final = 16 * 2**20  # of an annotation with plans


@dataclass(frozen=True, slots=True)
class Timing:
    """The waits for a broker, and the pauses between questions."""

    request: timedelta = timedelta(seconds=60)
    poll: timedelta = timedelta(seconds=10)
    max_polling: timedelta = timedelta(hours=24)
    catalog: timedelta = timedelta(minutes=5)
    resync: timedelta = timedelta(minutes=10)


@dataclass(frozen=True, slots=True)
class OfferingChoice:
    """An offering that becomes kinds; its name decides without `kind`, and no `plans` are all."""

    name: str
    kind: str = ""
    plans: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BrokerSpec:
    """A ServiceBroker. `url` is "" where the Secret has it; no `offerings`: all of them.

    `insecure`: whatever certificate it shows is trusted.
    """

    name: str
    namespace: str = ""
    uid: str = ""
    generation: int = 0
    url: str = ""
    secret: str = ""
    api_version: str = NEWEST_API
    group: str = ""
    offerings: tuple[OfferingChoice, ...] = ()
    timing: Timing = Timing()
    insecure: bool = False


def broker_spec(live: Manifest) -> BrokerSpec:
    namespace, name = manifest.identity_of(live)
    return BrokerSpec(
        name=name,
        namespace=namespace,
        uid=manifest.uid_of(live),
        generation=manifest.get_int(live, "metadata", "generation") or 0,
        url=manifest.get_text(live, "spec", "url"),
        secret=manifest.get_text(live, "spec", "secretRef", "name"),
        api_version=manifest.get_text(live, "spec", "apiVersion") or NEWEST_API,
        group=manifest.get_text(live, "spec", "group"),
        offerings=tuple(
            OfferingChoice(
                manifest.get_text(one, "name"),
                manifest.get_text(one, "kind"),
                tuple(manifest.get_texts(one, "plans")),
            )
            for one in manifest.get_maps(live, "spec", "offerings")
        ),
        timing=_timing(live),
        insecure=manifest.get_bool(live, "spec", "insecureSkipVerify"),
    )


def _timing(live: Manifest) -> Timing:
    stated: dict[str, timedelta] = {}
    for name in ("request", "poll", "maxPolling", "catalog", "resync"):
        if duration := span(manifest.get_text(live, "spec", "timing", name)):
            stated["max_polling" if name == "maxPolling" else name] = duration
    return Timing(**stated)


@dataclass(frozen=True, slots=True)
class GeneratedKind:
    """A kind that `klutchctl catalog` made of an offering, by its CRD.

    `offering` is the id of the service, `plans` has the id of each plan by its name; `instances` is
    the plural of the kind that a binding kind binds, "" for instances.
    """

    kind: Kind
    broker: str
    offering: str
    plans: Mapping[str, str]
    instances: str = ""

    @property
    def is_binding(self) -> bool:
        return bool(self.instances)

    @property
    def stem(self) -> str:
        """The kind without `Instance` or `Binding`, in lower case: the type of its services."""
        return self.kind.kind.removesuffix("Binding" if self.is_binding else "Instance").lower()

    @property
    def service(self) -> str:
        """The value of label `osb-service` on Secrets."""
        return service_label(self.broker, self.stem)


def service_label(broker: str, stem: str) -> str:
    """Return the label of the Secrets of an offering: `acme.postgresql`, 63 characters at most."""
    service = f"{broker}.{stem}"
    if len(service) <= MAX_LABEL:
        return service
    mark = manifest.digest([broker, stem])[:8]
    return f"{service[: MAX_LABEL - len(mark) - 1]}.{mark}"


def generated_kind(crd: Manifest) -> GeneratedKind | None:
    """Return the kind that a CRD was generated for; None where no catalogue made it."""
    broker = manifest.labels_of(crd).get(keys.OSB_BROKER, "")
    noted = manifest.annotations_of(crd)
    plans = object_of(noted.get(keys.OSB_PLANS, "").encode(), most_memory=_MOST_MEMORY)
    offering = noted.get(keys.OSB_OFFERING, "")
    version = next(
        (one for one in manifest.get_maps(crd, "spec", "versions") if one.get("storage")), {}
    )
    kind = Kind(
        manifest.get_text(crd, "spec", "group"),
        manifest.get_text(version, "name"),
        manifest.get_text(crd, "spec", "names", "kind"),
        manifest.get_text(crd, "spec", "names", "plural"),
    )
    if not (broker and offering and kind.version and kind.plural):
        return None
    ids = manifest.get_text_map(plans or {})
    return GeneratedKind(kind, broker, offering, ids, noted.get(keys.OSB_INSTANCES, ""))
