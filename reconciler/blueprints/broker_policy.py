"""Builds the admission policy of klutch-osb, with the limits that RBAC cannot express.

Which Secrets it writes and where, and that what developers wrote stays as they wrote it.
bind/deploy/osb holds it.
"""

from typing import Final

from reconciler.api.osb import OSB_GROUP
from reconciler.blueprints import cel
from reconciler.blueprints.policies import PLACES, Policy, Rule, of_kind
from reconciler.core import keys, names, refs

_HERE: Final = "request.namespace"
_OSB: Final = cel.text(names.OSB_NAMESPACE)
_ACCOUNT: Final = f"system:serviceaccount:{names.OSB_NAMESPACE}:{keys.MANAGER_OSB}"
_PROVISIONED: Final = "servicebinding.io/"
_CONNECTION: Final = "connection.crossplane.io/v1alpha1"
_IS_CHANGE: Final = "request.operation == 'UPDATE'"


def _is_typed(secret: str) -> str:
    return cel.either(
        f"{secret}.?type.orValue('').startsWith({cel.text(_PROVISIONED)})", _is_connection(secret)
    )


def _is_connection(secret: str) -> str:
    return f"{secret}.?type.orValue('') == {cel.text(_CONNECTION)}"


def _is_owned(secret: str) -> str:
    """Return whether the controller of a Secret is of a kind that the account serves.

    Its plural follows from its name. An owner that is not there has the Secret collected.
    """
    served = (
        "authorizer.group(o.apiVersion.split('/')[0]).resource(o.kind.lowerAscii() + 's')"
        f".subresource('status').namespace({_HERE}).check('patch').allowed()"
    )
    one = cel.both("o.?controller.orValue(false)", served)
    return f"{secret}.metadata.?ownerReferences.orValue([]).exists(o, {one})"


def _is_free(secret: str) -> str:
    owners = f"{secret}.metadata.?ownerReferences.orValue([])"
    return f"{owners}.all(o, !o.?controller.orValue(false))"


_RULES: Final = (
    Rule(
        cel.either(
            cel.about(refs.SECRET, refs.EVENT),
            f"!({cel.BUILT_IN})",
            cel.both(f"{_HERE} == {_OSB}", cel.about(refs.LEASE)),
        ),
        "it writes Secrets, Events and services only, and its Lease",
    ),
    of_kind(
        cel.about(refs.SECRET),
        must=cel.both(cel.is_no_system(_HERE), f"{_HERE} != {_OSB}", "!variables.space"),
        message="it writes Secrets beside claims only: not in kube-*, klutch-bind, klutch-osb and "
        "binding spaces",
    ),
    of_kind(
        cel.about(refs.SECRET),
        must=cel.both(
            cel.either(cel.IS_DELETE, cel.both(_is_typed("object"), _is_owned("object"))),
            cel.either(
                "oldObject == null",
                cel.both(
                    _is_typed("oldObject"),
                    cel.either(
                        _is_owned("oldObject"),
                        cel.both(_IS_CHANGE, _is_connection("oldObject"), _is_free("oldObject")),
                    ),
                ),
            ),
        ),
        message=f"it writes Secrets of type {_PROVISIONED}* or {_CONNECTION} only, which belong "
        "to a binding that it serves",
    ),
    of_kind(
        cel.both(
            f"!({cel.BUILT_IN})", f"request.resource.group != {cel.text(OSB_GROUP)}", _IS_CHANGE
        ),
        must="object.?spec == oldObject.?spec",
        message="it changes no spec of a claim",
    ),
)


def policy() -> Policy:
    """Return the policy for klutch-osb, which may read and write Secrets of all namespaces."""
    return Policy(
        keys.MANAGER_OSB,
        f"request.userInfo.username == {cel.text(_ACCOUNT)}",
        _RULES,
        PLACES,
    )
