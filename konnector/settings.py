"""The flags and environment of `konnector`, as one value (protocol-konnector.md A.1).

The original's flags keep their names and defaults, so that its manifests start this program.
"""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final

from reconciler.controller import flags
from reconciler.controller.flags import Address, Operation
from reconciler.controller.lease import holder_here
from reconciler.core import names
from reconciler.core.errors import ConfigError
from reconciler.core.times import span
from reconciler.kube import networks
from reconciler.kube.networks import ANYWHERE, Networks

# More than one process can send: API priority and fairness of the server is the limit.
_QPS: Final = 2000.0
_BURST: Final = 4000
# Objects wait for API servers, and some for slow webhooks; none is to wait for another.
_WORKERS: Final = 32
_PROBES: Final = ("", 8080)
_SECRET_NAME: Final = "app-cluster-kubeconfig-secret-name"
_SECRET_NAMESPACE: Final = "app-cluster-kubeconfig-secret-namespace"
_SECRET_KEY: Final = "app-cluster-kubeconfig-secret-key"
_SPACE: Final = "binding-root-namespace"
_BINDINGS: Final = "binding-namespace"


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlPlaneMode:
    """The settings of a konnector that runs beside the control plane.

    `space` holds the ClusterBinding, the exports, the APIServiceBindings and what they refer to.
    The Secret, on the control plane, holds the app cluster's kubeconfig under `secret_key`.
    """

    space: str
    secret_namespace: str
    secret_name: str
    secret_key: str = names.KUBECONFIG


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(Operation):
    """The settings of a konnector.

    `kubeconfig` leads to the app cluster, in control-plane mode to the control plane.
    APIServiceBindings of `binding_namespace` alone are served, with "" those of all; that has no
    meaning for cluster-scoped ones, nor beside the control plane.
    `namespace` is the pod's own. `orphan_grace`: when a copy without its origin goes, None: never.
    """

    control_plane_mode: ControlPlaneMode | None = None
    binding_namespace: str = ""
    lease_name: str = names.KONNECTOR_LEASE
    lease_namespace: str = names.KUBE_SYSTEM
    namespace: str = ""
    lease_identity: str
    probes: Address | None = _PROBES
    workers: int = _WORKERS
    qps: float = _QPS
    burst: int = _BURST
    orphan_grace: timedelta | None = None
    networks: Networks = ANYWHERE  # where kubeconfigs in Secrets may lead


def parse(arguments: Sequence[str], environ: Mapping[str, str]) -> Settings:
    """Return the settings of these arguments, and of the environment.

    Of that, POD_NAME, POD_NAMESPACE and BINDING_NAMESPACE count, what klutch-bind says of networks,
    and whether it is that of a pod.

    Raises ConfigError for a wrong one, and SystemExit(0) after --help and --version.
    """
    given = _parser().parse_args(list(arguments))
    mode = _control_plane_mode(given) if given.control_plane_mode else None
    idle = _OF_THE_MODE if mode is None else (_BINDINGS,)
    return Settings(
        control_plane_mode=mode,
        binding_namespace=given.binding_namespace or environ.get("BINDING_NAMESPACE", ""),
        lease_name=given.lease_name or names.KONNECTOR_LEASE,
        lease_namespace=given.lease_namespace
        or environ.get("POD_NAMESPACE", "")
        or names.KUBE_SYSTEM,
        namespace=environ.get("POD_NAMESPACE", ""),
        lease_identity=environ.get("POD_NAME", "") or holder_here(),
        orphan_grace=_grace(given.orphan_grace),
        networks=_networks(given, environ),
        **flags.operation(given, idle=idle),
    )


def _networks(given: argparse.Namespace, environ: Mapping[str, str]) -> Networks:
    stated = networks.of_flags(
        given.allow_networks, given.deny_networks, in_cluster=networks.IN_CLUSTER in environ
    )
    return replace(stated, beside=networks.of_environment(environ))


_OF_THE_MODE: Final = (_SECRET_NAME, _SECRET_NAMESPACE, _SECRET_KEY, _SPACE)


def _control_plane_mode(given: argparse.Namespace) -> ControlPlaneMode:
    key = given.app_cluster_kubeconfig_secret_key
    mode = ControlPlaneMode(
        space=given.binding_root_namespace or "",
        secret_namespace=given.app_cluster_kubeconfig_secret_namespace or "",
        secret_name=given.app_cluster_kubeconfig_secret_name or "",
        secret_key=names.KUBECONFIG if key is None else key,
    )
    required = {
        _SECRET_NAME: mode.secret_name,
        _SECRET_NAMESPACE: mode.secret_namespace,
        _SPACE: mode.space,
    }
    missing = [f"--{name}" for name, value in required.items() if not value]
    if missing:
        raise ConfigError("required when --control-plane-mode is on", where=", ".join(missing))
    if not mode.secret_key:
        raise ConfigError(
            "cannot be empty when --control-plane-mode is on", where=f"--{_SECRET_KEY}"
        )
    return mode


def _grace(text: str) -> timedelta | None:
    if not text:
        return None
    if not (grace := span(text)):
        raise ConfigError(f"{text[:60]!r} is no time such as 30d or 12h", where="--orphan-grace")
    return grace


def _parser() -> flags.Parser:
    parser = flags.Parser(
        "konnector",
        "The agent of Klutch: claims go up to the control plane, status and credentials come down.",
        epilog="`konnector detach` removes finalizers after the control plane is gone for good; "
        "`konnector detach --help` lists its flags.",
    )
    text = parser.add_argument
    parser.access("clusters", _KUBECONFIG)
    text(f"--{_BINDINGS}", metavar="NAMESPACE", help=_CONFINED)
    for name, meaning in _NETWORKS.items():
        text(name, action="append", default=[], metavar="CIDR[,CIDR]", help=meaning)
    text("--orphan-grace", default="", metavar="DURATION", help=_GRACE)
    parser.section("control-plane mode")
    parser.switch("--control-plane-mode", default=False, help="run beside the control plane")
    text(f"--{_SECRET_NAME}", metavar="NAME", help=_SECRET)
    text(f"--{_SECRET_NAMESPACE}", metavar="NAMESPACE", help="namespace of that Secret")
    text(f"--{_SECRET_KEY}", metavar="KEY", help="key in that Secret (default: kubeconfig)")
    text(f"--{_SPACE}", metavar="NAMESPACE", help="the binding space")
    parser.operation(probe_address=":8080", workers=_WORKERS, qps=_QPS, burst=_BURST)
    text(
        "--lease-name",
        default=names.KONNECTOR_LEASE,
        help="the leader's Lease (default: %(default)s)",
    )
    text(
        "--lease-namespace",
        default="",
        help="namespace of that Lease (default: $POD_NAMESPACE, or kube-system)",
    )
    return parser


_KUBECONFIG: Final = (
    f"of the app cluster; in control-plane mode, that of the control plane ({flags.KUBECONFIG})"
)
_SECRET: Final = "Secret on the control plane with the app cluster's kubeconfig"
_CONFINED: Final = "serve APIServiceBindings there only (default: $BINDING_NAMESPACE, or all)"
_NETWORKS: Final = {
    "--deny-networks": "refuse these addresses in kubeconfigs of Secrets (in a pod: also loopback)",
    "--allow-networks": "exceptions from --deny-networks",
}
_GRACE: Final = "delete a copy if its claim is absent for this time, such as 30d (default: never)"
