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
from reconciler.blueprints.offering.kinds import Before, Known, Named
from reconciler.blueprints.offering.outcomes import line
from reconciler.blueprints.offering.parameters import stricter
from reconciler.core import keys, names
from reconciler.core.errors import ConfigError, KlutchError
from reconciler.core.manifest import JSON, Manifest, get_text, name_of
from reconciler.core.refs import CLUSTER_ROLE, SECRET, GroupResource, Kind

NAMESPACE: Final = "klutch-osb"  # where brokers are, unless they say another one
_HANDED_ON: Final = ("create", "delete", "get", "list", "patch", "update", "watch")
_SERVED: Final = ("list", "patch", "watch")
_LONGEST_TITLE: Final = 100
_SECRETS: Final = {"group": SECRET.group, "resource": SECRET.plural, "version": SECRET.version}


def templates(
    offering: Offering, named: Named, kinds: Sequence[Kind], namespace: str
) -> Iterator[Manifest]:
    """Yield the APIServiceExportTemplates of an offering's kinds: of instances, and of bindings."""
    title = line(get_text(offering.metadata, "displayName"), longest=_LONGEST_TITLE) or line(
        offering.name, longest=_LONGEST_TITLE
    )
    page = get_text(offering.metadata, "documentationUrl")
    is_link = page.startswith("https://") and page.isprintable() and " " not in page
    for kind in kinds:
        selector = {"group": kind.group, "resource": kind.plural, "version": kind.version}
        spec: dict[str, JSON] = {"APIServiceSelector": selector}
        heading, words = title, line(offering.description)
        if kind == named.bindings:
            heading, words = (
                f"{title}: credentials",
                f"Credentials for {named.instances.kind}. They"
                " arrive as a Secret, which needs your consent.",
            )
            labels: list[JSON] = [{keys.OSB_SERVICE: named.service}]
            of_offering = {"owner": keys.OWNER_PROVIDER, "labelSelectors": labels}
            spec["permissionClaims"] = [{**_SECRETS, "selector": of_offering}]
        noted = {keys.TITLE: heading, keys.DESCRIPTION: words}
        noted |= {keys.DOCS_URL: page if is_link else ""}
        marks = Marks(annotations={key: text for key, text in noted.items() if text})
        yield build(
            API_SERVICE_EXPORT_TEMPLATE, kind.resource, namespace=namespace, marks=marks, spec=spec
        )


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


def fleet_template(named: Named, kinds: Sequence[Kind]) -> Manifest:
    """Return the document of a fleet that offers the kinds, with that claim as the ceiling."""
    spec: dict[str, JSON] = {
        "resources": [GroupResource(kind.group, kind.plural).wire for kind in kinds]
    }
    if named.bindings in kinds:
        labels = {keys.OSB_SERVICE: named.service}
        spec["claims"] = [{**_SECRETS, "owner": keys.OWNER_PROVIDER, "labels": labels}]
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
    """The documents of each file, by its path, and sentences on the parts that they leave out.

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
        name, hint = broker.name, "Give each broker a folder of its own, by --out"
        raise ConfigError(f"the files are of the broker {before.broker}", where=name, hint=hint)
    merge = _merged(broker, catalogue, before, allowed=allow_narrowing)
    if merge.narrowings and not allow_narrowing:
        raise Narrowing(tuple(merge.narrowings))
    offered = sorted(merge.known.values(), key=lambda one: one.stem)
    named = [Named(broker.name, broker.group, one.stem) for one in offered]
    kinds.check(zip((one.offering.name for one in offered), named, strict=True))
    warnings = [*catalogue.repeated, *merge.warnings]
    files: dict[str, Documents] = {}
    exported, served, bindable = list[Manifest](), list[Kind](), False
    for one, of in zip((each.offering for each in offered), named, strict=True):
        made = [crd.of_instances(one, of), crd.of_bindings(one, of)]
        for each in (each for each in made if each is not None):
            files[f"crds/{name_of(each.crd)}.yaml"] = (each.crd,)
            warnings += [f"offering {one.name}: {warning}" for warning in each.warnings]
        mine = [of.instances, *([of.bindings] if made[1] else [])]
        exported += templates(one, of, mine, broker.namespace or NAMESPACE)
        files[f"fleet/{of.template}.yaml"] = (fleet_template(of, mine),)
        served, bindable = [*served, *mine], bindable or len(mine) > 1
    if served:
        files[TEMPLATES] = tuple(exported)
        files[RIGHTS] = tuple(rights(broker.name, served, secrets=bindable))
    return Output(files, tuple(warnings), before.files)


_STAYS: Final = "is no longer offered: it stays until --allow-narrowing"


@dataclass(slots=True)
class _Merge:
    """A merge as far as it went; `known` are offerings by their ids."""

    catalogue: Catalogue
    before: Before
    allowed: bool
    known: dict[str, Known] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    narrowings: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)


def _merged(broker: BrokerSpec, catalogue: Catalogue, before: Before, *, allowed: bool) -> _Merge:
    """Return the sources of the files. Raises CatalogueFault where choices cannot be met."""
    merge = _Merge(catalogue, before, allowed)
    choices = broker.offerings or tuple(
        OfferingChoice(one.name) for one in sorted(catalogue.offerings, key=lambda one: one.name)
    )
    for choice in choices:
        one = _chosen(merge, choice)
        if one is not None:
            merge.known[one.offering.id] = one
    for service, known in sorted(before.known.items()):
        if service not in merge.known and not allowed:
            merge.known[service] = known
            merge.warnings.append(f"offering {known.offering.name} {_STAYS}")
    if before.group and before.group != broker.group:
        merge.narrowings.append(f"the group changes from {before.group} to {broker.group}")
    if merge.faults:
        raise CatalogueFault(merge.faults)
    return merge


def _chosen(merge: _Merge, choice: OfferingChoice) -> Known | None:
    """Return the part of the catalogue that a choice leaves; None without such an offering."""
    known = merge.before.by_name(choice.name)
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
    before = merge.before.known.get(current.id)
    stem = choice.kind or (before.stem if before else "") or kinds.stem_of(current.name)
    plans = _plans(merge, choice, current, before.offering if before else None)
    after = Known(stem, replace(current, plans=plans))
    if before is not None:
        merge.narrowings += _narrowings(before, after)
    return after


def _plans(
    merge: _Merge, choice: OfferingChoice, current: Offering, before: Offering | None
) -> tuple[Plan, ...]:
    """Return the plans of an offering, with those of files, by name."""
    found = {one.name: one for one in current.plans if not choice.plans or one.name in choice.plans}
    old = {one.name: one for one in before.plans} if before else {}
    for name in sorted(set(choice.plans) - found.keys() - old.keys()):
        merge.faults.append(f"offering {current.name} has no plan {name!r}")
    for name, plan in old.items():
        if name not in found and not merge.allowed:
            living = current.plan(plan.id)
            found[name] = replace(living, name=name) if living else plan
            merge.warnings.append(f"offering {current.name}: plan {name} {_STAYS}")
        elif name in found and found[name].id != plan.id:
            merge.narrowings.append(f"offering {current.name}: plan {name} has another id")
    if not found:
        merge.faults.append(f"offering {current.name} has none of the plans that are named")
    return tuple(found[name] for name in sorted(found))


def _narrowings(before: Known, after: Known) -> Iterator[str]:
    """Return the abilities that objects of the kinds lose."""
    of = f"offering {after.offering.name}"
    if before.stem != after.stem:
        yield f"{of}: its kinds are called {after.stem}..., and no longer {before.stem}..."
    plans = {plan.name: plan for plan in after.offering.plans}
    for plan in before.offering.plans:
        if plan.name in plans:
            for loss in _of_plan(plan, plans[plan.name]):
                yield f"{of}: plan {plan.name}: {loss}"


def _of_plan(before: Plan, after: Plan) -> Iterable[str]:
    if before.plan_updateable and not after.plan_updateable:
        yield "instances can no longer leave it"
    if before.bindable and not after.bindable:
        yield "its instances can no longer be bound"
    for of, forms in (("", parameters.of_instances), ("bindings: ", parameters.of_bindings)):
        new, old = (forms([one]).form for one in (after, before))
        yield from (f"{of}{loss}" for loss in stricter(new, old, "parameters"))
