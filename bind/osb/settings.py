"""The flags of `klutch-osb`, as one value."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from reconciler.broker.client import BrokerAddress, BrokerClient, Observe
from reconciler.controller import flags
from reconciler.controller.flags import Flag, Operation


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(Operation):
    """The settings of klutch-osb. `namespace` is that of its ServiceBrokers; "": the pod's own."""

    namespace: str = ""
    lease_namespace: str = ""
    dataservices: bool = False
    allow_plain_http: bool = False
    allow_loopback: bool = False
    allow_insecure: bool = False
    workers: int = 8
    qps: float = 100.0
    burst: int = 300

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
        "klutch-osb",
        "Serves the offers of Open Service Brokers, as kinds of a control plane.",
        example="--context control-plane --namespace klutch-osb --leader-election=false",
    )
    parser.access("control plane")
    parser.table(
        namespace=Flag("namespace of ServiceBrokers and records (default: the pod's own)", "NAME"),
        dataservices=Flag("serve dataservices.anynines.com as well", default=False),
    )
    parser.section("brokers")
    parser.table(
        allow_plain_http=Flag("also call brokers by http://", default=False),
        allow_loopback=Flag("also call brokers on this machine", default=False),
        allow_insecure_brokers=Flag(
            "a Secret may turn off the check of certificates", default=False
        ),
    )
    parser.operation(Settings, probe_address="")
    parser.table(
        lease_namespace=Flag(
            "namespace of the leader's Lease (default: that of --namespace)", "NAME"
        )
    )
    return parser
