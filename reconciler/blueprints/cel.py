"""Common CEL expressions of several admission policies.

Each is about the request that an API server checks (`object`, `oldObject`, `namespaceObject`).
Does not know whose requests they are.
"""

from collections.abc import Iterable
from typing import Final

from reconciler.core import keys, names
from reconciler.core.refs import Kind

_SECURITY: Final = "pod-security.kubernetes.io/"
_SPACES: Final = names.app_cluster_binding_space("", "")[:-1]
_MODES: Final = ("enforce", "audit", "warn")
TOKEN_TYPE: Final = "kubernetes.io/service-account-token"
# What Kubernetes itself serves, in contrast to the kinds of services.
BUILT_IN: Final = (
    "(!request.resource.group.contains('.') || request.resource.group.endsWith('.k8s.io'))"
)
CLUSTER_SCOPED: Final = "namespaceObject == null"
NAME: Final = "(object == null ? oldObject : object).metadata.name"
IS_DELETE: Final = "request.operation == 'DELETE'"


def text(value: str) -> str:
    plain = value.isprintable() and "'" not in value and "\\" not in value
    return f"'{value if plain else ''.join(map(_character, value))}'"


def _character(one: str) -> str:
    if one in "\\'":
        return f"\\{one}"
    return one if one.isprintable() else f"\\U{ord(one):08x}"


def texts(values: Iterable[str]) -> str:
    """Return texts as a list, in order."""
    return f"[{', '.join(text(value) for value in sorted(values))}]"


def resource(kind: Kind) -> str:
    """Return the name of a kind in `RESOURCE`."""
    return f"{kind.group}/{kind.plural}"


# What a request is about, such as `apps/deployments`, or `/secrets` of the core group.
RESOURCE: Final = "request.resource.group + '/' + request.resource.resource"


def about(*kinds: Kind) -> str:
    return f"variables.what in {texts(map(resource, kinds))}"


def either(*expressions: str) -> str:
    return " || ".join(f"({expression})" for expression in expressions)


def both(*expressions: str) -> str:
    return " && ".join(f"({expression})" for expression in expressions)


def annotation(holder: str, key: str) -> str:
    """Return an annotation of an object, "" where it has none."""
    return f"{holder}.metadata.?annotations[?{text(key)}].orValue('')"


def label(holder: str, key: str) -> str:
    """Return a label of an object, "" where it has none."""
    return f"{holder}.metadata.?labels[?{text(key)}].orValue('')"


def is_space(holder: str) -> str:
    """Return whether a Namespace is a binding space, by its marks, and no service namespace.

    That of an AppClusterBinding is labelled a little after it was made, so its name will do; but
    the names of its service namespaces begin alike.
    """
    marked = either(
        f"{holder}.metadata.name.startsWith({text(_SPACES)})",
        f"{label(holder, keys.CLUSTER)} != ''",
        f"{label(holder, keys.APP_CLUSTER_BINDING_NAME)} != ''",
        f"{annotation(holder, keys.IDENTITY)} != ''",
    )
    return both(marked, f"!({is_service_namespace(holder)})")


def is_service_namespace(holder: str) -> str:
    return f"{annotation(holder, keys.API_SERVICE_NAMESPACE)} != ''"


def is_marked(holder: str) -> str:
    """Return whether a Namespace is a binding space or a service namespace."""
    ours = either(is_space(holder), is_service_namespace(holder))
    return both(ours, is_no_system(f"{holder}.metadata.name"))


def is_no_system(name: str) -> str:
    """Exclude namespaces that a cluster, or Klutch in it, needs itself."""
    return f"!{name}.startsWith('kube-') && {name} != {text(names.KLUTCH_NAMESPACE)}"


def no_credential_type(*, but: str = "") -> str:
    """Return that a Secret is none with which its holder becomes somebody else.

    `but` lets a token of a ServiceAccount be.
    """
    token = f"object.?type.orValue('') == {text(TOKEN_TYPE)}"
    bootstrap = f"object.?type.orValue('') == {text('bootstrap.kubernetes.io/token')}"
    rest = either(f"!({token})", but) if but else f"!({token})"
    return either(IS_DELETE, both(f"!({bootstrap})", rest))


def token_of(account: str) -> str:
    """Return that a Secret is named like this account, whose token it holds."""
    named = f"object.metadata.name == {text(account)}"
    return both(named, f"{annotation('object', keys.SERVICE_ACCOUNT_NAME)} == {text(account)}")


def security_kept() -> str:
    """Return that no Pod Security label of a Namespace is lowered: it stays, or is the strictest.

    A label that is absent means what the API server was told, so adding one may lower it too.
    """
    rows = [
        f"object.metadata.?labels[?{text(key)}] == "
        f"(oldObject == null ? optional.none() : oldObject.metadata.?labels[?{text(key)}])"
        f" || {label('object', key)} == {text(strictest)}"
        for mode in _MODES
        for key, strictest in (
            (f"{_SECURITY}{mode}", "restricted"),
            (f"{_SECURITY}{mode}-version", "latest"),
        )
    ]
    return either(IS_DELETE, both(*rows))


def is_harmless(account: str) -> str:
    """Return that the Pods of a Deployment run as this account and reach nothing of their node.

    They mount nothing but what they had before.
    """
    pod = "object.spec.template.spec"
    old = "oldObject.spec.template.spec.?volumes.orValue([])"
    containers = f"({pod}.containers + {pod}.?initContainers.orValue([]))"
    confined = both(
        "!c.?securityContext.?privileged.orValue(false)",
        "c.?securityContext.?capabilities.?add.orValue([]).size() == 0",
        "!c.?securityContext.?windowsOptions.?hostProcess.orValue(false)",
        "c.?ports.orValue([]).all(p, p.?hostPort.orValue(0) == 0)",
    )
    return either(
        IS_DELETE,
        both(
            f"{pod}.?serviceAccountName.orValue('') == {text(account)}",
            f"{pod}.?serviceAccount.orValue({text(account)}) == {text(account)}",
            *(f"!{pod}.?{field}.orValue(false)" for field in ("hostNetwork", "hostPID", "hostIPC")),
            f"!{pod}.?securityContext.?windowsOptions.?hostProcess.orValue(false)",
            f"{pod}.?volumes.orValue([]) == (oldObject == null ? [] : {old})",
            f"{containers}.all(c, {confined})",
        ),
    )


def subjects(account: str, *, namespace: str) -> str:
    """Return that a role is given to this ServiceAccount alone. `namespace` is an expression."""
    one = both(
        "s.kind == 'ServiceAccount'",
        f"s.name == {text(account)}",
        f"s.?namespace.orValue('') in {namespace}",
    )
    return f"object.?subjects.orValue([]).all(s, {one})"


NOT_AGGREGATED: Final = both(
    "!has(object.aggregationRule)",
    "object.metadata.?labels.orValue({}).all(k, !k.contains('aggregate-to-'))",
)
