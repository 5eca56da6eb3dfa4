"""Renders a broker's catalogue as files for Git: CRDs, templates, rights, fleet documents.

It merges the catalogue, narrowed by choices, with earlier files. Withdrawn offers stay, with a
warning, until narrowing is allowed. A narrowing is a sentence about a change that would take
something away from existing objects.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from reconciler.api import API_SERVICE_EXPORT_TEMPLATE
from reconciler.api.osb import BrokerSpec, OfferingChoice
from reconciler.blueprints.objects import Marks, build
from reconciler.blueprints.offering import crd, kinds, parameters
from reconciler.blueprints.offering.catalogue import Catalogue, CatalogueFault, Offering, Plan
from reconciler.blueprints.offering.kinds import Before, Known, Named, shown_metadata
from reconciler.blueprints.offering.outcomes import line
from reconciler.blueprints.offering.parameters import stricter
from reconciler.core import keys, names
from reconciler.core.errors import ConfigError, KlutchError
from reconciler.core.manifest import JSON, Manifest, get_text
from reconciler.core.refs import CLUSTER_ROLE, SECRET, GroupResource, Kind

NAMESPACE: Final = "klutch-osb"  # where brokers are, unless they say another one
_HANDED_ON: Final = ("create", "delete", "get", "list", "patch", "update", "watch")
_SERVED: Final = ("list", "patch", "watch")
_LONGEST_TITLE: Final = 100


def templates(
    offering: Offering, named: Named, *, namespace: str, bindable: bool
) -> list[Manifest]:
    """Return the APIServiceExportTemplates of an offering's kinds."""
    title = line(get_text(offering.metadata, "displayName"), longest=_LONGEST_TITLE) or line(
        offering.name, longest=_LONGEST_TITLE
    )
    words = line(offering.description)
    found = [_exported(named.instances, namespace, _shown_marks(title, words, offering), [])]
    if bindable:
        marks = _shown_marks(
            f"{title}: credentials",
            f"Credentials for {named.instances.kind}. They"
            " arrive as a Secret, which needs your consent.",
            offering,
        )
        found.append(_exported(named.bindings, namespace, marks, [_claim(named)]))
    return found


def _shown_marks(title: str, words: str, offering: Offering) -> Marks:
    page = get_text(offering.metadata, "documentationUrl")
    docs = page if page.startswith("https://") and page.isprintable() and " " not in page else ""
    noted = {keys.TITLE: title, keys.DESCRIPTION: words, keys.DOCS_URL: docs}
    return Marks(annotations={key: text for key, text in noted.items() if text})


def _exported(kind: Kind, namespace: str, marks: Marks, claims: Sequence[Manifest]) -> Manifest:
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
        "apiVersion": "fleet.klutchctl.dev/v1alpha1",
        "kind": "Template",
        "metadata": {"name": named.template},
    }
    return {**head, "spec": spec}


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
    before = kinds.before(made_before, lock)
    if before.broker not in ("", broker.name):
        hint = "Give each broker a folder of its own, by --out"
        raise ConfigError(f"the files are of the broker {before.broker}", hint=hint)
    merge = _merged(broker, catalogue, before, allowed=allow_narrowing)
    if merge.narrowings and not allow_narrowing:
        raise Narrowing(tuple(merge.narrowings))
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
        offering = known.offering
        instances, bindings = crd.of_instances(offering, named), crd.of_bindings(offering, named)
        for made in (instances, bindings):
            if made is not None:
                name = str(made.crd["metadata"]["name"])  # type: ignore[index,call-overload]
                self.files[f"crds/{name}.yaml"] = (made.crd,)
                self.warnings += [f"offering {offering.name}: {one}" for one in made.warnings]
        self.kinds += [named.instances, *([named.bindings] if bindings else [])]
        self.bindable |= bindings is not None
        namespace = self.broker.namespace or NAMESPACE
        self.files[TEMPLATES] = (
            *self.files.get(TEMPLATES, ()),
            *templates(offering, named, namespace=namespace, bindable=bindings is not None),
        )
        self.files[f"fleet/{named.template}.yaml"] = (
            fleet_template(named, bindable=bindings is not None),
        )

    def finish(self) -> None:
        if self.kinds:
            self.files[RIGHTS] = tuple(rights(self.broker.name, self.kinds, secrets=self.bindable))


_STAYS: Final = "is no longer offered: it stays until --allow-narrowing"


@dataclass(slots=True)
class _Merge:
    """A merge as far as it went; `known` are offerings by their ids."""

    catalogue: Catalogue
    held: Before
    allowed: bool
    known: dict[str, Known] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    narrowings: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)


def _merged(broker: BrokerSpec, catalogue: Catalogue, held: Before, *, allowed: bool) -> _Merge:
    """Return what files are made from. Raises CatalogueFault where choices cannot be met."""
    merge = _Merge(catalogue, held, allowed)
    choices = broker.offerings or tuple(
        OfferingChoice(one.name) for one in sorted(catalogue.offerings, key=lambda one: one.name)
    )
    for choice in choices:
        one = _chosen(merge, choice)
        if one is not None:
            merge.known[one.offering.id] = one
    for service, known in sorted(held.known.items()):
        if service not in merge.known and not allowed:
            merge.known[service] = known
            merge.warnings.append(f"offering {known.offering.name} {_STAYS}")
    if held.group and held.group != broker.group:
        merge.narrowings.append(f"the group changes from {held.group} to {broker.group}")
    if merge.faults:
        raise CatalogueFault(merge.faults)
    return merge


def _chosen(merge: _Merge, choice: OfferingChoice) -> Known | None:
    """Return what one choice leaves of the catalogue; None where there is no such offering."""
    known = merge.held.by_name(choice.name)
    current = next((one for one in merge.catalogue.offerings if one.name == choice.name), None)
    if current is None and known is not None:
        current = merge.catalogue.offering(known.offering.id)
        if current is not None:
            merge.warnings.append(f"offering {choice.name} is called {current.name} now")
    if current is None:
        # One that files were made for stays, as others that no choice names.
        if known is None:
            offered = ", ".join(sorted(one.name for one in merge.catalogue.offerings)[:20])
            merge.faults.append(f"there is no offering {choice.name!r}, but {offered or 'none'}")
        return None
    if known is not None and known.offering.id != current.id:
        merge.narrowings.append(f"offering {current.name} has another id: it is another one")
    before = merge.held.known.get(current.id)
    stem = choice.kind or (before.stem if before else "") or kinds.stem_of(current.name)
    plans = _plans(merge, choice, current, before.offering if before else None)
    after = Known(stem, replace(_plain(current), plans=plans))
    if before is not None:
        merge.narrowings += _narrowings(before, after)
    return after


def _plain(offering: Offering) -> Offering:
    """Return just what files follow from."""
    return Offering(
        id=offering.id,
        name=offering.name,
        description=offering.description,
        metadata=shown_metadata(offering.metadata),
    )


def _plans(
    merge: _Merge, choice: OfferingChoice, current: Offering, before: Offering | None
) -> tuple[Plan, ...]:
    """Return the plans of an offering, with those of files, by name."""
    found = {
        one.name: _plain_plan(one)
        for one in current.plans
        if not choice.plans or one.name in choice.plans
    }
    old = {one.name: one for one in before.plans} if before else {}
    for name in sorted(set(choice.plans) - found.keys() - old.keys()):
        merge.faults.append(f"offering {current.name} has no plan {name!r}")
    for name, plan in old.items():
        if name not in found and not merge.allowed:
            living = current.plan(plan.id)
            found[name] = replace(_plain_plan(living), name=name) if living else plan
            merge.warnings.append(f"offering {current.name}: plan {name} {_STAYS}")
        elif name in found and found[name].id != plan.id:
            merge.narrowings.append(f"offering {current.name}: plan {name} has another id")
    if not found:
        merge.faults.append(f"offering {current.name} has none of the plans that are named")
    return tuple(found[name] for name in sorted(found))


def _plain_plan(plan: Plan) -> Plan:
    return Plan(
        id=plan.id,
        name=plan.name,
        description=plan.description,
        bindable=plan.bindable,
        plan_updateable=plan.plan_updateable,
        schemas=plan.schemas,
    )


def _narrowings(before: Known, after: Known) -> Iterator[str]:
    """Return what objects of the kinds could do before, and cannot any more."""
    of = f"offering {after.offering.name}"
    if before.stem != after.stem:
        yield f"{of}: its kinds are called {after.stem}..., and no longer {before.stem}..."
    plans = {plan.name: plan for plan in after.offering.plans}
    for plan in before.offering.plans:
        if plan.name in plans:
            for what in _of_plan(plan, plans[plan.name]):
                yield f"{of}: plan {plan.name}: {what}"


def _of_plan(before: Plan, after: Plan) -> Iterable[str]:
    if before.plan_updateable and not after.plan_updateable:
        yield "instances can no longer leave it"
    if before.bindable and not after.bindable:
        yield "its instances can no longer be bound"
    for of, forms in (("", parameters.of_instances), ("bindings: ", parameters.of_bindings)):
        new, old = (forms([one]).form for one in (after, before))
        yield from (f"{of}{what}" for what in stricter(new, old, "parameters"))
