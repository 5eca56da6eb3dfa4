"""A broker's catalogue as files for Git: CRDs, templates, rights, documents of a fleet."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from reconciler.api.osb import BrokerSpec
from reconciler.blueprints.offering import companions, crd, kinds, known, merging
from reconciler.blueprints.offering.catalogue import Catalogue
from reconciler.blueprints.offering.kinds import Named
from reconciler.blueprints.offering.known import Known
from reconciler.core.errors import ConfigError, KlutchError
from reconciler.core.manifest import Manifest
from reconciler.core.refs import Kind

TEMPLATES: Final = "templates.yaml"
RIGHTS: Final = "rights.yaml"

Documents: TypeAlias = tuple[Manifest, ...]


class Narrowing(KlutchError):
    """Files that would take something away from objects that are there. Nothing was written."""

    exit_code: Final = 6

    def __init__(self, sentences: tuple[str, ...]) -> None:
        self.sentences = sentences
        listed = "".join(f"\n  {one}" for one in sentences)
        super().__init__(
            "the catalogue takes away what objects may rely on:"
            f"{listed}\nWrite the files all the same with --allow-narrowing"
        )


@dataclass(frozen=True, slots=True)
class Output:
    """The documents of each file, by its path, and sentences on what they do not say.

    `before` are the files that were made before, some of which are not any more.
    """

    files: Mapping[str, Documents]
    warnings: tuple[str, ...] = ()
    before: frozenset[str] = frozenset()


def files_of(
    broker: BrokerSpec,
    catalogue: Catalogue,
    made_before: Mapping[str, Documents],
    lock: bytes | None = None,
    *,
    allow_narrowing: bool,
) -> Output:
    """Return the files of a broker, by those before, and a lock file that is left of them.

    Raises CatalogueFault, Narrowing, and ConfigError where what they hold cannot be used.
    """
    kinds.check_broker(broker)
    before = known.before(made_before, lock)
    if before.broker not in ("", broker.name):
        hint = "Give each broker a folder of its own, by --out"
        raise ConfigError(f"the files are of the broker {before.broker}", hint=hint)
    merge = merging.merged(broker, catalogue, before, allowed=allow_narrowing)
    if merge.narrowings and not allow_narrowing:
        raise Narrowing(merge.narrowings)
    named = {
        service: Named(broker.name, broker.group, one.stem) for service, one in merge.known.items()
    }
    kinds.check((merge.known[service].offering.name, one) for service, one in named.items())
    made = _Files(broker, {}, [*catalogue.repeated, *merge.warnings], [])
    for service in sorted(named, key=lambda one: named[one].stem):
        made.add(merge.known[service], named[service])
    made.finish()
    return Output(made.files, tuple(made.warnings), before.files)


@dataclass(slots=True)
class _Files:
    """The files as far as they were made."""

    broker: BrokerSpec
    files: dict[str, Documents]
    warnings: list[str]
    kinds: list[Kind]
    bindable: bool = False

    def add(self, known: Known, named: Named) -> None:
        """Add what one offering becomes."""
        offering = known.offering
        instances, bindings = crd.of_instances(offering, named), crd.of_bindings(offering, named)
        for made in (instances, bindings):
            if made is not None:
                name = str(made.crd["metadata"]["name"])  # type: ignore[index,call-overload]
                self.files[f"crds/{name}.yaml"] = (made.crd,)
                self.warnings += [f"offering {offering.name}: {one}" for one in made.warnings]
        self.kinds += [named.instances, *([named.bindings] if bindings else [])]
        self.bindable |= bindings is not None
        namespace = self.broker.namespace or companions.NAMESPACE
        self.files[TEMPLATES] = (
            *self.files.get(TEMPLATES, ()),
            *companions.templates(
                offering, named, namespace=namespace, bindable=bindings is not None
            ),
        )
        self.files[f"fleet/{named.template}.yaml"] = (
            companions.fleet_template(named, bindable=bindings is not None),
        )

    def finish(self) -> None:
        """Add what all offerings have together."""
        if self.kinds:
            self.files[RIGHTS] = tuple(
                companions.rights(self.broker.name, self.kinds, secrets=self.bindable)
            )
