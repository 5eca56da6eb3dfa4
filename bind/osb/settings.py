"""The flags of `klutch-osb`, as one value."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from reconciler.broker.client import BrokerAddress, BrokerClient, Observe
from reconciler.controller import flags
from reconciler.controller.flags import Operation

_WORKERS: Final = 8
_QPS: Final = 100.0
_BURST: Final = 300
_NAMESPACE: Final = "namespace of ServiceBrokers and records (default: the pod's own)"
_LEASES: Final = "namespace of the leader's Lease (default: that of --namespace)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(Operation):
    """The settings of klutch-osb. `namespace` is that of its ServiceBrokers; "": the pod's own."""

    namespace: str = ""
    lease_namespace: str = ""
    dataservices: bool = False
    allow_plain_http: bool = False
    allow_loopback: bool = False
    allow_insecure: bool = False
    workers: int = _WORKERS
    qps: float = _QPS
    burst: int = _BURST

    def client(
        self, address: BrokerAddress, *, timeout: timedelta, observe: Observe | None
    ) -> BrokerClient:
        """Return the client of a broker, within the limits of these settings."""
        return BrokerClient(
            address,
            timeout=timeout,
            allow_plain_http=self.allow_plain_http,
            allow_loopback=self.allow_loopback,
            allow_insecure=self.allow_insecure,
            observe=observe,
        )


def parse(arguments: Sequence[str]) -> Settings:
    """Return the settings of these arguments.

    Raises ConfigError for a wrong one, and SystemExit(0) after --help and --version.
    """
    given = _parser().parse_args(list(arguments))
    return Settings(
        namespace=given.namespace,
        lease_namespace=given.lease_namespace,
        dataservices=given.dataservices,
        allow_plain_http=given.allow_plain_http,
        allow_loopback=given.allow_loopback,
        allow_insecure=given.allow_insecure_brokers,
        **flags.operation(given, idle=()),
    )


def _parser() -> flags.Parser:
    parser = flags.Parser(
        "klutch-osb", "Serves the offers of Open Service Brokers, as kinds of a control plane."
    )
    text, switch = parser.add_argument, parser.switch
    parser.access("control plane")
    text("--namespace", default="", metavar="NAME", help=_NAMESPACE)
    switch("--dataservices", default=False, help="serve dataservices.anynines.com as well")
    parser.section("brokers")
    switch("--allow-plain-http", default=False, help="also call brokers by http://")
    switch("--allow-loopback", default=False, help="also call brokers on this machine")
    switch(
        "--allow-insecure-brokers",
        default=False,
        help="a Secret may turn off the check of certificates",
    )
    parser.operation(probe_address="", workers=_WORKERS, qps=_QPS, burst=_BURST)
    text("--lease-namespace", default="", metavar="NAME", help=_LEASES)
    return parser
