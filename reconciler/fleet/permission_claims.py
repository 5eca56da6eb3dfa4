"""Permission claims of Bindings, and the ceiling that their Template sets (mapping.md 6)."""

from collections.abc import Iterable, Sequence

from reconciler.core.errors import Problem
from reconciler.core.yaml_text import Items, Node
from reconciler.fleet.documents import parsing, service_models, substitution
from reconciler.fleet.documents.models import BindingDocument, TemplateDocument
from reconciler.fleet.documents.parsing import Document
from reconciler.fleet.documents.substitution import Scope
from reconciler.fleet.values import Claim, Owner


class Claims:
    """The claims of one Binding, for each cluster that it selects."""

    def __init__(
        self, binding: Document[BindingDocument], template: Document[TemplateDocument] | None
    ) -> None:
        own = binding.model.spec.claims
        offered = template.model.spec.claims if template else []
        self._ceiling = (
            _Source(template, offered, service_models.CeilingClaim) if template else None
        )
        self._own = None if own is None else _Source(binding, own, service_models.Claim)
        self._constant: tuple[Claim, ...] | None = None

    def of(self, scope: Scope, problems: list[Problem]) -> tuple[Claim, ...]:
        """Return the claims for the cluster of `scope`; what is outside the ceiling is a problem.

        Claims that do not depend on the cluster are computed once, with their problems.
        """
        if self._constant is not None:
            return self._constant
        ceiling = self._ceiling.claims(scope, problems) if self._ceiling else ()
        own = ceiling if self._own is None else self._own.claims(scope, problems)
        if self._own is not None:
            problems.extend(_twice(own))
            if self._ceiling is not None:
                problems.extend(_outside(own, ceiling))
        sources = [source for source in (self._own, self._ceiling) if source]
        if not any(source.depends_on_cluster for source in sources):
            self._constant = own
        return own


class _Source:
    """A list of claims in a document."""

    def __init__(
        self,
        document: Document[BindingDocument] | Document[TemplateDocument],
        models: Sequence[service_models.CeilingClaim],
        model: type[service_models.CeilingClaim],
    ) -> None:
        node = document.node_at("spec", "claims")
        self._nodes: Sequence[Node] = node.nodes if isinstance(node, Items) else ()
        self._models, self._model = models, model
        self.depends_on_cluster = any(map(substitution.has_references, self._nodes))

    def claims(self, scope: Scope, problems: list[Problem]) -> tuple[Claim, ...]:
        if not self.depends_on_cluster:
            return tuple(map(_claim, self._models, self._nodes))
        read = [
            (parsing.late(node, self._model, scope=scope, problems=problems), node)
            for node in self._nodes
        ]
        return tuple(_claim(model, node) for model, node in read if model is not None)


def _claim(model: service_models.CeilingClaim, node: Node) -> Claim:
    return Claim(
        group=model.group,
        resource=model.resource,
        version=model.version,
        owner=Owner(model.owner),
        names=tuple(sorted(model.names)),
        namespaces=tuple(sorted(model.namespaces)),
        labels=tuple(sorted(tuple(sorted(labels.items())) for labels in model.labels)),
        accepted=not isinstance(model, service_models.Claim) or model.state == "Accepted",
        origin=node.origin,
    )


def _twice(claims: Sequence[Claim]) -> Iterable[Problem]:
    seen: dict[object, Claim] = {}
    for claim in claims:
        selector = (claim.names, claim.namespaces, claim.labels)
        key = (claim.group, claim.resource, claim.version, claim.owner, selector)
        first = seen.setdefault(key, claim)
        if first is not claim:
            message = f"this claim of {claim.resource} is there twice: also at {first.origin}"
            yield Problem(claim.origin, "duplicate-claim", message)


def _outside(claims: Sequence[Claim], ceiling: Sequence[Claim]) -> Iterable[Problem]:
    """Yield the accepted claims that no claim of the Template covers. To reject is always right."""
    for claim in claims:
        if not claim.accepted or any(not _excess(claim, most) for most in ceiling):
            continue
        alike = [most for most in ceiling if _kind(most) == _kind(claim)]
        excess = " and ".join(_excess(claim, alike[0])) if alike else ""
        detail = f"its {excess} reach further" if excess else "the Template names no such claim"
        message = f"this claim of {claim.resource} is outside the Template's: {detail}"
        hint = f"The most is at {alike[0].origin}" if alike else ""
        yield Problem(claim.origin, "claim-outside-ceiling", message, hint)


def _kind(claim: Claim) -> tuple[str, ...]:
    return (claim.group, claim.resource, claim.version, claim.owner)


def _excess(claim: Claim, most: Claim) -> list[str]:
    """Return which parts of a claim reach further than those of `most`; [] for none."""
    if _kind(claim) != _kind(most):
        return ["kind"]
    parts = {
        "names": _within(claim.names, most.names),
        "namespaces": _within(claim.namespaces, most.namespaces),
        "labels": _labels_within(claim, most),
    }
    return [part for part, within in parts.items() if not within]


def _within(names: tuple[str, ...], most: tuple[str, ...]) -> bool:
    # () is objects without a namespace, which is not a part of some namespaces.
    return most in (("*",), names) or (bool(names) and set(names) <= set(most))


def _labels_within(claim: Claim, most: Claim) -> bool:
    """Tell whether each label map, of which an object needs one, asks for one of `most` too."""
    if not most.labels:
        return True
    return bool(claim.labels) and all(
        any(set(allowed) <= set(asked) for allowed in most.labels) for asked in claim.labels
    )
