"""Builds admission policies for the accounts of bindings: limits that RBAC cannot express.

Which namespaces, which types of Secrets, which roles for which account. A policy is for accounts by
name and concerns no other. It fails closed. bind/deploy and konnector/deploy hold those that are
here, klutchctl prints them beside its own.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from reconciler.blueprints import cel, machinery
from reconciler.blueprints.objects import build
from reconciler.core import keys, names, refs
from reconciler.core.keys import KLUTCH_GROUP
from reconciler.core.manifest import JSON, Manifest, get_map, get_text, get_texts

# Asking what one may do is not a write.
_REVIEWS: Final = ("authentication.k8s.io", "authorization.k8s.io")
_BIND: Final = cel.text(names.KLUTCH_NAMESPACE)
_HERE: Final = "request.namespace"
ANY: Final = "*"
_NS: Final = "namespaceObject"
_MARK: Final = cel.annotation(_NS, keys.API_SERVICE_NAMESPACE)
# Whether the request is about something in a binding space, or in a service namespace.
PLACES: Final = tuple(
    (name, f"{cel.CLUSTER_SCOPED} ? false : ({cel.both(cel.is_no_system(_HERE), found)})")
    for name, found in (("space", cel.is_space(_NS)), ("service", cel.is_service_namespace(_NS)))
)
_SAME_SERVICES: Final = " == ".join(
    cel.annotation(one, keys.API_SERVICE_NAMESPACE) for one in ("object", "oldObject")
)
# Whether a Namespace is made as one of these, or was one before and holds the same services.
MARKED: Final = (
    f"oldObject == null ? ({cel.is_marked('object')}) : "
    f"({cel.both(cel.is_marked('oldObject'), cel.either(cel.IS_DELETE, _SAME_SERVICES))})"
)


@dataclass(frozen=True, slots=True)
class Rule:
    """A condition on a write, and the sentence for a user whose write does not meet it."""

    expression: str
    message: str


@dataclass(frozen=True, slots=True)
class Policy:
    """The conditions on all writes of some accounts. `accounts` is a condition on the request."""

    name: str
    accounts: str
    rules: Sequence[Rule]
    variables: Sequence[tuple[str, str]] = ()

    def manifests(self) -> tuple[Manifest, Manifest]:
        everything = {"apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"]}
        spec: Manifest = {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [{**everything, "operations": ["*"]}]},
            "matchConditions": [
                {"name": "accounts", "expression": self.accounts},
                {
                    "name": "writes",
                    "expression": f"!(request.resource.group in {cel.texts(_REVIEWS)})",
                },
            ],
            "variables": list(self._variables()),
            "validations": [
                {
                    "expression": rule.expression,
                    "message": f"{self.name}: {rule.message}",
                    "reason": "Forbidden",
                }
                for rule in self.rules
            ],
        }
        binding: Manifest = {"policyName": self.name, "validationActions": ["Deny"]}
        return (
            build(refs.ADMISSION_POLICY, self.name, spec=spec),
            build(refs.ADMISSION_POLICY_BINDING, self.name, spec=binding),
        )

    def is_enforced_by(self, binding: Manifest) -> bool:
        """Return whether a live ValidatingAdmissionPolicyBinding enforces this policy."""
        spec = get_map(binding, "spec")
        is_own = get_text(spec, "policyName") == self.name
        is_whole = not {"matchResources", "paramRef"} & {*spec}
        return is_own and is_whole and "Deny" in get_texts(spec, "validationActions")

    def _variables(self) -> Iterator[JSON]:
        for name, expression in (("what", cel.RESOURCE), ("name", cel.NAME), *self.variables):
            yield {"name": name, "expression": expression}


def accounts(*users: str) -> str:
    """Return the condition for ServiceAccounts of namespace klutch-bind."""
    return f"request.userInfo.username in {cel.texts(map(user_of, users))}"


def user_of(account: str) -> str:
    """Return how an API server calls a ServiceAccount of namespace klutch-bind."""
    return f"system:serviceaccount:{names.KLUTCH_NAMESPACE}:{account}"


def of_kind(condition: str, *, must: str, message: str) -> Rule:
    """Return the rule for requests of which `condition` holds."""
    return Rule(cel.either(f"!({condition})", must), message)


_NO_CREDENTIALS: Final = of_kind(
    cel.about(refs.SECRET),
    must=cel.no_credential_type(),
    message="it writes no token of a ServiceAccount and no bootstrap token",
)
BINDER_ACCOUNT: Final = of_kind(
    cel.about(refs.SERVICE_ACCOUNT),
    must=cel.both("variables.space", f"variables.name == {cel.text(names.BINDER)}"),
    message="it makes account klutch-binder of binding spaces only",
)
# Of an object that a konnector brought down before; and of one that is to look so.
BROUGHT, _MARKS = (
    f"{cel.annotation(one, keys.RESOURCE_OWNER)} == {cel.text(keys.OWNER_PROVIDER)}"
    for one in ("oldObject", "object")
)
_ROLES: Final = (names.BINDER, names.CONTROL_PLANE_CONNECTOR)
_OWN: Final = f"{names.BINDER}-"
_LEGACY: Final = f"{names.legacy_konnector_cluster_role('', '')[:-2]}-"
_DOOR_KEYS: Final = cel.both(
    f"{_HERE} == {_BIND}",
    cel.about(refs.SECRET),
    f"variables.name == {cel.text(names.DOOR_KEYS)}",
    f"!({cel.IS_DELETE})",
)
_OF_BACKEND: Final = (
    Rule(
        cel.either(
            cel.both(
                cel.CLUSTER_SCOPED,
                cel.about(refs.NAMESPACE, refs.CLUSTER_ROLE, refs.CLUSTER_ROLE_BINDING),
            ),
            cel.both(f"!({cel.CLUSTER_SCOPED})", "variables.space || variables.service"),
            cel.about(refs.EVENT),
            f"request.resource.group == {cel.text(KLUTCH_GROUP)}",
            cel.both(f"{_HERE} == {_BIND}", cel.about(refs.LEASE)),
            _DOOR_KEYS,
        ),
        "it writes in binding spaces and service namespaces only",
    ),
    of_kind(
        cel.about(refs.SECRET),
        must=cel.either(
            cel.both("variables.space", cel.no_credential_type(but=cel.token_of(names.BINDER))),
            cel.both(_DOOR_KEYS, cel.no_credential_type()),
        ),
        message="it writes Secrets in binding spaces only, beside the keys of its front door, and "
        "no token but that of klutch-binder",
    ),
    of_kind(
        cel.about(refs.NAMESPACE),
        must=cel.both(MARKED, cel.security_kept()),
        message="it makes, marks and deletes only binding spaces and service namespaces, "
        "and lowers no Pod Security label",
    ),
    of_kind(
        cel.about(refs.ROLE_BINDING, refs.ROLE),
        must=cel.either(
            cel.IS_DELETE,
            cel.both(
                f"variables.name in {cel.texts(_ROLES)}",
                cel.either(
                    cel.about(refs.ROLE),
                    cel.both(
                        f"object.roleRef.name in {cel.texts(_ROLES)} || "
                        f"object.roleRef.name.startsWith({cel.text(_OWN)})",
                        cel.subjects(
                            names.BINDER, namespace=f"[{_HERE}, variables.mark.split('/')[0]]"
                        ),
                    ),
                ),
            ),
        ),
        message="it gives roles of its own only, to the account of the binding space only",
    ),
    of_kind(
        cel.about(refs.CLUSTER_ROLE, refs.CLUSTER_ROLE_BINDING),
        must=cel.both(
            f"variables.name == {cel.text(names.BINDER)} || "
            f"variables.name.startsWith({cel.text(_OWN)}) || "
            f"({cel.IS_DELETE} && variables.name.startsWith({cel.text(_LEGACY)}))",
            cel.either(
                cel.IS_DELETE,
                cel.both(cel.about(refs.CLUSTER_ROLE), cel.NOT_AGGREGATED),
                cel.both(
                    cel.about(refs.CLUSTER_ROLE_BINDING),
                    "object.roleRef.name == variables.name",
                    f"variables.name != {cel.text(names.BINDER)}",
                    cel.subjects(
                        names.BINDER, namespace=f"[variables.name.substring({len(_OWN)})]"
                    ),
                ),
            ),
        ),
        message="it writes the roles klutch-binder and klutch-binder-<space> only",
    ),
    BINDER_ACCOUNT,
    of_kind(
        cel.about(refs.DEPLOYMENT),
        must=cel.both("variables.space", cel.is_harmless(names.BINDER)),
        message="it deploys konnectors in binding spaces only: as klutch-binder, without "
        "volumes, privileges and the node's namespaces",
    ),
)
_CONTENT_KEPT: Final = [
    f"object.?{field} == oldObject.?{field}" for field in ("data", "binaryData", "immutable")
]
_OF_KONNECTOR: Final = (
    Rule(
        cel.either(
            f"!({cel.CLUSTER_SCOPED})",
            f"!({cel.BUILT_IN})",
            cel.about(refs.CRD),
            cel.about(refs.EVENT),
        ),
        "of what is in no namespace it writes CRDs and services only",
    ),
    _NO_CREDENTIALS,
    of_kind(
        cel.both(
            f"!({cel.CLUSTER_SCOPED})",
            cel.BUILT_IN,
            f"!({cel.about(refs.EVENT, refs.LEASE)})",
            "oldObject != null",
        ),
        # What it may mark later, it may have in two writes.
        must=cel.either("variables.brought", cel.both(f"!({cel.IS_DELETE})", f"!({_MARKS})")),
        message="it deletes only what it brought, and marks nothing else so "
        f"(annotation {keys.RESOURCE_OWNER}: {keys.OWNER_PROVIDER})",
    ),
    of_kind(
        cel.both(
            cel.about(refs.SECRET, refs.CONFIG_MAP),
            f"{_HERE} != {_BIND}",
            "request.operation == 'UPDATE'",
        ),
        must=cel.either("variables.brought", cel.both(*_CONTENT_KEPT)),
        message="it changes the content only of what it brought "
        f"(annotation {keys.RESOURCE_OWNER}: {keys.OWNER_PROVIDER})",
    ),
    of_kind(
        cel.both(cel.about(refs.CRD), "request.operation == 'CREATE'"),
        must="authorizer.group('apiextensions.k8s.io')"
        ".resource('customresourcedefinitions').name(variables.name)"
        ".check('patch').allowed()",
        message="it makes only CRDs that it may also change: those of bound services",
    ),
)


def backend() -> Policy:
    """Return the policy for klutch-bind, which holds all that it hands out to konnectors."""
    mark = ("mark", f"{cel.CLUSTER_SCOPED} ? '' : {_MARK}")
    return Policy(names.BACKEND, accounts(names.BACKEND), _OF_BACKEND, (mark, *PLACES))


def binder() -> Policy:
    """Return the policy for the account of each binding space, whose token an app cluster has."""
    pattern = f"^system:serviceaccount:[^:]+:{names.BINDER}$"
    return Policy(
        names.BINDER,
        f"request.userInfo.username.matches({cel.text(pattern)})",
        (
            Rule(
                cel.either(
                    cel.CLUSTER_SCOPED,
                    f"{_HERE} == variables.own",
                    cel.both(
                        cel.is_service_namespace(_NS),
                        cel.is_no_system(_HERE),
                        # A name may be that of an earlier space.
                        f"{cel.annotation(_NS, keys.ACCOUNT_UID)} == variables.uid",
                        "variables.uid != ''",
                    ),
                ),
                "it writes in its own binding space and service namespaces only",
            ),
            Rule(
                cel.either(f"!({cel.CLUSTER_SCOPED})", f"!({cel.BUILT_IN})"),
                "of what is in no namespace it writes services only",
            ),
            _NO_CREDENTIALS,
            Rule(
                machinery.KEPT,
                "it writes no field of Crossplane's that the export of the kind leaves out",
            ),
            Rule(machinery.MARKS_KEPT, "it writes no label and no annotation of Crossplane's"),
            Rule(
                machinery.CHOSEN,
                "it names no composition but those that the template of the kind names",
            ),
        ),
        (
            *machinery.VARIABLES,
            ("own", "request.userInfo.username.split(':')[2]"),
            ("uid", "request.userInfo.?uid.orValue('')"),
        ),
    )


def konnector(namespaces: Collection[str] = (ANY,)) -> Policy:
    """Return the policy for a konnector in its app cluster, wherever it runs.

    `namespaces` are those of its permission claims; those of the cluster itself are not in `*`.
    """
    claimed = f"{_HERE} in {cel.texts(set(namespaces) - {ANY})}"
    if ANY in namespaces:
        claimed = cel.either(claimed, f"!{_HERE}.startsWith('kube-')")
    inside = cel.either(cel.about(refs.SECRET, refs.LEASE), f"!({cel.BUILT_IN})")
    return Policy(
        names.KONNECTOR_CLUSTER_ROLE,
        accounts(names.KONNECTOR, names.AGENTLESS_SERVICE_ACCOUNT),
        (
            Rule(
                cel.either(
                    cel.CLUSTER_SCOPED,
                    cel.about(refs.EVENT),
                    f"!({cel.BUILT_IN})",
                    f"{_HERE} == {_BIND} ? ({inside}) : ({claimed})",
                ),
                "it writes only where permission claims reach, in kube-* only where they name it, "
                "and in klutch-bind what is its own only",
            ),
            *_OF_KONNECTOR,
        ),
        (("brought", f"oldObject == null ? false : {BROUGHT}"),),
    )
