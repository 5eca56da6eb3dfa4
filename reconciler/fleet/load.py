"""Loads a fleet: from the files of a repository to checked values.

Pure: everything that is wrong comes back as a value, all at once, and no exception is raised for
what people wrote. A name that stands in a document with mistakes is known, and while a file
cannot be read nothing is called unknown: one mistake is not reported as many.

A pull request is a fleet that is judged by what the protected branch says, not by itself. Else the
author of the files could grant themselves what they ask for. From the protected branch, the base,
come:

- the Policies with their default, and the labels of its clusters, by which Policies allow. A
  cluster that is new has the labels that the pull request gives it. The Policies of the pull
  request hold beside them: after the merge they will be all there is.
- the name of the fleet, by which objects are known as its own: another one is denied.
- the guards: of each, the stricter one holds.
- the way to each cluster: where it is new or another one, the cluster must not be contacted.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from reconciler.core.errors import ConfigError, Problem, Severity, in_order
from reconciler.core.manifest import digest
from reconciler.fleet import bindings, clusters, models, parsing, policies
from reconciler.fleet.base_model import StrictModel
from reconciler.fleet.bindings import ResolvedBinding
from reconciler.fleet.clusters import CaFiles
from reconciler.fleet.files import LoadCache, Repository, Snapshot, read
from reconciler.fleet.parsing import Document, RawDocument, Scope
from reconciler.fleet.reference_index import PerCluster, ReferenceIndex
from reconciler.fleet.values import AppCluster, DeletionPolicy, Fleet, Guards, PruneMode


def shard(fleet: Fleet, planes: Collection[str]) -> Fleet:
    """Return the fleet of some control planes alone, with its share of the deletes of a run.

    The clusters of the others have not left: they are `elsewhere`. Raises ConfigError.
    """
    if unknown := sorted(set(planes) - fleet.control_planes.keys()):
        known = ", ".join(sorted(fleet.control_planes))
        message = f"no such control plane: {', '.join(unknown)}"
        raise ConfigError(message, where="--control-plane", hint=f"There are: {known}")
    clusters = {name: one for name, one in fleet.clusters.items() if one.control_plane in planes}
    units = {key: one for key, one in fleet.units.items() if key.cluster in clusters}
    others = [one for name, one in sorted(fleet.clusters.items()) if name not in clusters]
    return replace(
        fleet,
        control_planes={name: fleet.control_planes[name] for name in sorted(planes)},
        clusters=clusters,
        units=units,
        guards=_share(fleet.guards, len(units), len(fleet.units)),
        elsewhere={one.name: one.identity for one in others},
        ways_elsewhere={str(one.access): one.name for one in others if not one.identity},
    )


def suspended(fleet: Fleet, reason: str) -> Fleet:
    """Return the fleet with every cluster suspended, as by its document."""
    clusters = {
        name: one if one.suspended is not None else replace(one, suspended=reason)
        for name, one in fleet.clusters.items()
    }
    return replace(fleet, clusters=clusters, suspended=reason)


def _share(guards: Guards, units: int, total: int) -> Guards:
    """Return guards whose budget is the share of so many units: shards together spend no more."""
    share = guards.max_deletes * units // total if total else guards.max_deletes
    return replace(guards, max_deletes=max(1, share) if guards.max_deletes else 0)


M = TypeVar("M", bound=StrictModel)


@dataclass(frozen=True, slots=True)
class Loaded:
    """The valid part of a repository, also where other parts of it are not."""

    fleet: Fleet
    repository: Repository
    references: ReferenceIndex
    bindings: Sequence[ResolvedBinding]
    templates: Sequence[Document[models.TemplateDocument]]
    policies: Sequence[Document[models.PolicyDocument]]


def load(
    snapshot: Snapshot, cache: LoadCache | None = None
) -> tuple[Fleet | None, tuple[Problem, ...]]:
    """Return the fleet that the files describe, and all problems in the order of their places.

    The fleet is None where a problem is INVALID or DENIED. `cache` is of an earlier load, and
    makes this one quicker, and nothing else.
    """
    problems: list[Problem] = []
    loaded = load_valid_part(snapshot, problems, cache)
    return loaded.fleet if loaded and allowed(problems) else None, in_order(problems)


def load_valid_part(
    snapshot: Snapshot, problems: list[Problem], cache: LoadCache | None = None
) -> Loaded | None:
    """Return the valid part of a fleet, None where there is none, and add all problems.

    A fleet with problems lacks what they are about: nothing may be planned by it.
    """
    known = cache or LoadCache()
    known.begin()
    repository = read(snapshot, problems, known)
    return None if repository is None else _Loader(repository, snapshot, problems, known).loaded()


def allowed(problems: Iterable[Problem]) -> bool:
    """Return whether a fleet may be used in spite of these problems."""
    return all(problem.severity is Severity.WARNING for problem in problems)


@dataclass(frozen=True, slots=True)
class _Loader:
    """A pass over the documents, from those that stand alone to those that refer to others."""

    repository: Repository
    snapshot: Snapshot
    problems: list[Problem]
    cache: LoadCache

    def loaded(self) -> Loaded:
        ca_files = CaFiles(self.snapshot)
        references = self._references(ca_files)
        templates = self._of("Template", models.TemplateDocument, references)
        resolved = self._resolved(templates, references)
        alone = (one.document for one in resolved if one.template is None)
        self.problems.extend((*bindings.wide_claims(templates), *bindings.wide_claims(alone)))
        rules = self._of("Policy", models.PolicyDocument, references)
        found = [
            policies.resolve(rule, references=references, problems=self.problems) for rule in rules
        ]
        self._deny(found, resolved)
        fleet = self._fleet(references, resolved, self.repository.paths | ca_files.used)
        return Loaded(fleet, self.repository, references, resolved, templates, rules)

    def _deny(self, found: Sequence[policies.Policy], bound: Sequence[ResolvedBinding]) -> None:
        fleet, documents = self.repository.fleet, self.repository.documents
        deny = policies.denies_by_default(fleet)
        self.problems.extend(policies.check(found, bound, documents, deny=deny))
        self.problems.extend(policies.unsaid_default(fleet))

    def _fleet(
        self, references: ReferenceIndex, bound: Sequence[ResolvedBinding], paths: Iterable[str]
    ) -> Fleet:
        document = self.repository.fleet
        suspend = document.model.spec.suspend
        fleet = Fleet(
            name=document.name,
            origin=document.origin,
            guards=_guards(document.model.spec.prune),
            control_planes=references.control_planes,
            clusters=references.clusters,
            units=bindings.units(
                bound, references=references, problems=self.problems, cache=self.cache
            ),
            digest=digest(self.snapshot.digests(paths)),
            revision=self.snapshot.revision,
            documents=Counter(raw.kind for raw in self.repository.documents),
        )
        return fleet if suspend is None else suspended(fleet, suspend.reason)

    def _references(self, ca_files: CaFiles) -> ReferenceIndex:
        """Return the clusters of the fleet, and all names that documents can refer to."""
        references = ReferenceIndex(
            documents={
                (document.kind, document.name): document for document in self.repository.documents
            },
            variables=self.repository.fleet.model.spec.vars,
            complete=self.repository.complete,
            refused=self.repository.refused,
        )
        documents = self._of("ControlPlane", models.ControlPlaneDocument, references)
        planes = [
            clusters.control_plane(document, ca_files, self.problems) for document in documents
        ]
        references = replace(references, control_planes={plane.name: plane for plane in planes})
        found = {cluster.name: cluster for cluster in self._clusters(ca_files, references)}
        labels = {name: cluster.labels for name, cluster in found.items()}
        references = replace(references, clusters=found, labels=labels)
        self.problems.extend(clusters.check_together(references))
        return references

    def _clusters(self, ca_files: CaFiles, references: ReferenceIndex) -> Iterable[AppCluster]:
        everywhere = PerCluster()
        for raw in self.repository.of("Cluster"):
            scope = Scope(references.variables, raw.name, parsing.labels_of(raw))
            document = self._document(raw, models.ClusterDocument, scope)
            problems: list[Problem] = []
            defaults = clusters.konnector_defaults(self.repository.fleet, scope, problems)
            for problem in problems:
                everywhere.add(raw.name, problem)
            if document is None or defaults is None:
                continue
            cluster = clusters.app_cluster(
                document, defaults, ca_files=ca_files, references=references, problems=self.problems
            )
            if cluster is not None:
                yield cluster
        self.problems.extend(everywhere.problems())

    def _resolved(
        self, templates: Iterable[Document[models.TemplateDocument]], references: ReferenceIndex
    ) -> list[ResolvedBinding]:
        by_name = {template.name: template for template in templates}
        known = (
            references.names("Cluster"),
            references.names("Template"),
            references.complete,
            references.refused,
        )

        def resolved(binding: Document[models.BindingDocument]) -> ResolvedBinding:
            template = by_name.get(binding.model.spec.template or "")
            return self.cache.recall(
                ("bound", binding.origin),
                (binding, template, references.labels, *known),
                lambda found: bindings.resolve(
                    binding, by_name, references=references, problems=found
                ),
                problems=self.problems,
            )

        return [
            resolved(binding) for binding in self._of("Binding", models.BindingDocument, references)
        ]

    def _of(self, kind: str, model: type[M], references: ReferenceIndex) -> list[Document[M]]:
        scope = Scope(references.variables)
        read = (self._document(raw, model, scope) for raw in self.repository.of(kind))
        return [document for document in read if document is not None]

    def _document(self, raw: RawDocument, model: type[M], scope: Scope) -> Document[M] | None:
        return self.cache.recall(
            ("document", raw.origin),
            (raw, scope),
            lambda found: parsing.document(raw, model, scope=scope, problems=found),
            problems=self.problems,
        )


def _guards(prune: models.Prune) -> Guards:
    words = {
        "mode": PruneMode(prune.mode),
        "on_cluster_leave": DeletionPolicy(prune.on_cluster_leave),
    }
    return Guards(**{**prune.model_dump(), **words})


@dataclass(frozen=True, slots=True)
class Base:
    """The fleet on the protected branch. `ref` is how the branch was named."""

    ref: str
    loaded: Loaded


@dataclass(frozen=True, slots=True)
class Review:
    """A pull request whose files can be understood.

    `fleet` is what to plan: that of the pull request, with the stricter guards. `head` is the
    pull request as it is written. What is `denied` may be shown, and never be saved or applied.
    """

    fleet: Fleet
    base: Base
    head: Loaded
    denied: tuple[Problem, ...] = ()


def load_base(ref: str, snapshot: Snapshot) -> Base:
    """Return the fleet to judge by. Raises ConfigError where it is invalid itself."""
    problems: list[Problem] = []
    loaded = load_valid_part(snapshot, problems)
    invalid = [problem for problem in in_order(problems) if problem.severity is Severity.INVALID]
    if loaded is None or invalid:
        raise unusable(ref, invalid)
    return Base(ref, loaded)


def unusable(ref: str, problems: Sequence[Problem]) -> ConfigError:
    """Return the error of a base that cannot be judged by; there is at least one problem."""
    more = f" (and {len(problems) - 1} more problems)" if len(problems) > 1 else ""
    return ConfigError(
        f"invalid itself, so nothing can be judged by it: {problems[0]}{more}",
        where=f"--base {ref}",
        hint="Mend it there first",
    )


def load_against(base: Base, snapshot: Snapshot) -> tuple[Review | None, tuple[Problem, ...]]:
    """Return the pull request whose files these are, and all its problems in order.

    It is None where a problem is INVALID, and where the Fleet has another name: what the clusters
    hold of that one would be read and shown as if it were its own.
    """
    problems: list[Problem] = []
    head = load_valid_part(snapshot, problems)
    renamed: list[Problem] = []
    if head is not None:
        problems.extend(_denied(base, head, problems))
        renamed.extend(_other_name(base, head))
    found = in_order([*problems, *renamed])
    if head is None or renamed or any(one.severity is Severity.INVALID for one in found):
        return None, found
    guards = head.fleet.guards.stricter(base.loaded.fleet.guards)
    denied = tuple(one for one in found if one.severity is Severity.DENIED)
    return Review(replace(head.fleet, guards=guards), base, head, denied), found


def new_ways(base: Fleet, head: Fleet) -> tuple[frozenset[str], frozenset[str]]:
    """Return the control planes and the clusters of `head` that `base` does not lead to so."""
    planes = frozenset(
        name
        for name, plane in head.control_planes.items()
        if name not in base.control_planes or base.control_planes[name].access != plane.access
    )
    clusters = frozenset(
        name
        for name, cluster in head.clusters.items()
        if name not in base.clusters
        or base.clusters[name].access != cluster.access
        # Its Secret lies on its control plane: elsewhere it is another Secret.
        or (cluster.access.secret and base.clusters[name].control_plane != cluster.control_plane)
    )
    return planes, clusters


def _denied(base: Base, head: Loaded, known: Iterable[Problem]) -> list[Problem]:
    """Return the further problems that the Policies of the base find."""
    known_problems = {(problem.origin, problem.code, problem.message) for problem in known}
    references = base.loaded.references
    judged = replace(references, labels={**head.references.labels, **references.labels})
    mended: list[Problem] = []  # the base has none, and new clusters make none
    rules = [
        policies.resolve(policy, references=judged, problems=mended)
        for policy in base.loaded.policies
    ]
    deny = policies.denies_by_default(base.loaded.repository.fleet)
    found = policies.check(rules, head.bindings, head.repository.documents, deny=deny)
    note = f"The Policies of {base.ref} apply; changes to them count after the merge"
    return [
        replace(problem, hint=f"{problem.hint}. {note}" if problem.hint else note)
        for problem in found
        if (problem.origin, problem.code, problem.message) not in known_problems
    ]


def _other_name(base: Base, head: Loaded) -> Iterable[Problem]:
    before, after = base.loaded.fleet.name, head.fleet.name
    if before != after:
        yield Problem(
            head.fleet.origin,
            "fleet-renamed",
            f"the Fleet is {before} in {base.ref}, and {after} here: what the clusters hold of"
            f" {after} would be taken for its own",
            f"Name it {before}",
            Severity.DENIED,
        )
