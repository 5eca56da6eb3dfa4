"""Builds the admission policies for klutchctl's own accounts: limits beyond RBAC. Pure.

They are printed beside the roles of an apply, with that of the konnector, whose rights an apply
gives away. A plan writes nothing, so none is about it.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from reconciler.api import API_SERVICE_BINDING, APP_CLUSTER_BINDING
from reconciler.blueprints import cel, policies, rbac
from reconciler.blueprints.policies import Policy, Rule, of_kind
from reconciler.core import names, refs
from reconciler.core.manifest import JSON, Manifest, get_map, get_maps, get_text, get_texts
from reconciler.doctor.rights import KONNECTOR, KONNECTOR_ROLES, Scope, Side, Task, account
from reconciler.fleet.values import Mode

_HERE: Final = "request.namespace"
_BIND: Final = cel.text(names.KLUTCH_NAMESPACE)


def wanted(side: Side, scope: Scope) -> tuple[Policy, ...]:
    """Return the policies that a cluster should have for an apply."""
    if side is Side.CONTROL_PLANE:
        return (_on_plane(scope),)
    return (_in_app(scope), policies.konnector(scope.named))


def expected(side: Side, scope: Scope, user: str) -> tuple[Policy, ...]:
    """Return those of them without which somebody has too many rights now.

    An administrator is held to nothing, and without a konnector of the fleet's there is none.
    """
    own = user == policies.user_of(account(scope.fleet, Task.APPLY))
    first, *others = wanted(side, scope)
    return (*((first,) if own else ()), *(others if scope.deploys else ()))


def in_force(policy: Policy, live: Manifest | None, binding: Manifest | None) -> bool:
    if live is None or binding is None:
        return False
    stated, _ = policy.manifests()
    return (
        _expressions(live) == _expressions(stated)
        and _concerned(live) == _concerned(stated)
        and "paramKind" not in get_map(live, "spec")
        and get_text(live, "spec", "failurePolicy") == "Fail"
        and policy.is_enforced_by(binding)
    )


def _expressions(policy: Manifest) -> list[list[str]]:
    return [
        [get_text(one, "expression") for one in get_maps(policy, "spec", part)]
        for part in ("matchConditions", "variables", "validations")
    ]


def _concerned(policy: Manifest) -> Manifest:
    """Return the match constraints of a policy, with the defaults of an API server."""
    place = ("spec", "matchConstraints")
    added: Manifest = {"matchPolicy": "Equivalent", "namespaceSelector": {}, "objectSelector": {}}
    rules: list[JSON] = [
        {"scope": policies.ANY, **one} for one in get_maps(policy, *place, "resourceRules")
    ]
    return {**added, **get_map(policy, *place), "resourceRules": rules}


def manifests(task: Task, side: Side, scope: Scope) -> tuple[Manifest, ...]:
    """Return the policies as manifests, none for a task that writes nothing."""
    if task is not Task.APPLY:
        return ()
    return tuple(one for policy in wanted(side, scope) for one in policy.manifests())


def _account(scope: Scope) -> tuple[str, str]:
    name = account(scope.fleet, Task.APPLY)
    return name, policies.accounts(name)


def _on_plane(scope: Scope) -> Policy:
    fleets = {namespace for namespace, _ in scope.kubeconfigs}
    kubeconfigs = {f"{namespace}/{name}" for namespace, name in scope.kubeconfigs}
    beside = f"{_HERE} in {cel.texts(fleets)}"
    return Policy(
        *_account(scope),
        (
            Rule(
                cel.either(
                    cel.CLUSTER_SCOPED,
                    "variables.space || variables.service",
                    cel.both(f"{_HERE} == {_BIND}", cel.about(refs.LEASE, refs.EVENT)),
                    cel.both(beside, cel.about(refs.SECRET, APP_CLUSTER_BINDING)),
                ),
                "it writes in binding spaces and service namespaces, and beside AppClusterBindings "
                "of the fleet only",
            ),
            Rule(
                cel.either(
                    f"!({cel.CLUSTER_SCOPED})", f"!({cel.BUILT_IN})", cel.about(refs.NAMESPACE)
                ),
                "of what is in no namespace it writes Namespaces and services only",
            ),
            of_kind(
                cel.about(refs.SECRET),
                must=cel.both(
                    cel.either(
                        "variables.space",
                        f"({_HERE} + '/' + variables.name) in {cel.texts(kubeconfigs)}",
                    ),
                    cel.no_credential_type(
                        but=cel.both("variables.space", cel.token_of(names.BINDER))
                    ),
                ),
                message="it writes Secrets in binding spaces, and kubeconfigs beside "
                "AppClusterBindings, only, and no token but klutch-binder's",
            ),
            policies.BINDER_ACCOUNT,
            of_kind(
                cel.about(refs.NAMESPACE),
                must=cel.both(
                    cel.either(
                        cel.both(
                            f"variables.name in {cel.texts({names.KLUTCH_NAMESPACE, *fleets})}",
                            f"object != null && !({cel.is_marked('object')})",
                        ),
                        policies.MARKED,
                    ),
                    cel.security_kept(),
                ),
                message="it makes, marks and deletes only binding spaces, and lowers no Pod "
                "Security label",
            ),
        ),
        policies.PLACES,
    )


def _in_app(scope: Scope) -> Policy:
    crds = {API_SERVICE_BINDING.resource, *(one.name for one in scope.services)}
    token = ""
    if Mode.APP_CLUSTER_BINDING in scope.modes:
        token = cel.token_of(names.AGENTLESS_SERVICE_ACCOUNT)
    return Policy(
        *_account(scope),
        (
            Rule(
                cel.either(
                    cel.CLUSTER_SCOPED,
                    f"{_HERE} == {_BIND}",
                    f"!({cel.BUILT_IN})",
                    cel.both(cel.about(refs.SECRET), cel.IS_DELETE, policies.BROUGHT),
                ),
                "it writes in klutch-bind, and services, only; elsewhere it deletes Secrets that "
                "were brought down",
            ),
            Rule(
                cel.either(
                    f"!({cel.CLUSTER_SCOPED})",
                    f"!({cel.BUILT_IN})",
                    cel.about(
                        refs.NAMESPACE, refs.CRD, refs.CLUSTER_ROLE, refs.CLUSTER_ROLE_BINDING
                    ),
                ),
                "of what is in no namespace it writes Namespaces, CRDs, roles and services only",
            ),
            of_kind(
                cel.about(refs.SECRET),
                must=cel.no_credential_type(but=token),
                message="it writes no token of a ServiceAccount and no bootstrap token, but for "
                f"that of {names.AGENTLESS_SERVICE_ACCOUNT} where a fleet has AppClusterBindings",
            ),
            of_kind(
                cel.about(refs.NAMESPACE),
                must=cel.both(f"variables.name == {_BIND}", cel.security_kept()),
                message="it makes Namespace klutch-bind only, and lowers no Pod Security label",
            ),
            of_kind(
                cel.about(refs.CRD),
                must=f"variables.name in {cel.texts(crds)}",
                message="it writes the CRDs of services of the fleet only",
            ),
            *_konnector(scope),
        ),
    )


def _konnector(scope: Scope) -> Iterator[Rule]:
    """Yield the policies for the konnector that an apply deploys, and for its rights."""
    yield of_kind(
        cel.about(refs.SERVICE_ACCOUNT),
        must=f"variables.name in {cel.texts(KONNECTOR)}",
        message="it writes the accounts of a konnector only",
    )
    yield of_kind(
        cel.about(refs.DEPLOYMENT),
        must=cel.both(
            f"variables.name == {cel.text(names.KONNECTOR)}", cel.is_harmless(names.KONNECTOR)
        ),
        message="it deploys a konnector only: under its own account, without volumes, privileges "
        "and the node's namespaces",
    )
    yield of_kind(
        cel.about(refs.CLUSTER_ROLE_BINDING),
        must=cel.either(
            cel.IS_DELETE,
            cel.both(
                f"variables.name in {cel.texts(KONNECTOR_ROLES)}",
                f"object.roleRef.name in {cel.texts(KONNECTOR_ROLES)}",
                cel.either(*(cel.subjects(one, namespace=f"[{_BIND}]") for one in KONNECTOR)),
            ),
        ),
        message="it gives the roles of a konnector only, and to a konnector only",
    )
    # More than any konnector of the fleet needs, and nothing that none needs. Of the Secret with
    # its kubeconfig, the rest of its name is known when it is deployed.
    secret = rbac.minimal_inside(names.KUBECONFIG_GENERATE_NAME)
    rules = (*rbac.minimal(scope.services, scope.claimed), *secret)
    yield of_kind(
        cel.about(refs.CLUSTER_ROLE),
        must=cel.either(
            cel.IS_DELETE,
            cel.both(
                f"variables.name in {cel.texts(KONNECTOR_ROLES)}",
                cel.NOT_AGGREGATED,
                *(() if scope.full else (_only(rules),)),
            ),
        ),
        message="it writes the roles of a konnector only, with what the fleet's services need",
    )


def _only(rules: Sequence[Manifest]) -> str:
    """Return that a ClusterRole has no rule beyond these."""
    whole, named = set[str](), set[str]()
    for rule in rules:
        for one in _each(rule):
            only = get_texts(rule, "resourceNames")
            whole |= set() if only else {one}
            named |= {f"{one}:{name}" for name in only}
    right = "(g + '/' + x + ':' + v)"
    prefix = cel.text(names.KUBECONFIG_GENERATE_NAME)
    of_object = cel.either(
        f"({right} + ':' + n) in {cel.texts(named)}",
        # The empty name is that of what a POST makes, and of what a list asks for.
        cel.both(f"n.startsWith({prefix})", f"({right} + ':' + {prefix}) in {cel.texts(named)}"),
    )
    names_of = "r.?resourceNames.orValue([])"
    one = cel.either(
        f"{right} in {cel.texts(whole)}",
        cel.both(f"{names_of}.size() > 0", f"{names_of}.all(n, {of_object})"),
    )
    each = (
        f"r.verbs.all(v, r.?resources.orValue([]).all(x, r.?apiGroups.orValue([]).all(g, {one})))"
    )
    no_paths = "r.?nonResourceURLs.orValue([]).size() == 0"
    return f"object.?rules.orValue([]).all(r, {cel.both(no_paths, each)})"


def _each(rule: Manifest) -> Iterator[str]:
    for group in get_texts(rule, "apiGroups"):
        for resource in get_texts(rule, "resources"):
            for verb in get_texts(rule, "verbs"):
                yield f"{group}/{resource}:{verb}"
