"""The network interface of this machine that the nodes of a sandbox are connected with.

It is a bridge, with the addresses of all API servers, so that pods and programs of this machine
reach them by the same. It exists from `up` to `down`, or to the next start of the machine.
"""

import fcntl
import json
import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from klutchctl.sandbox import processes
from klutchctl.sandbox.nodes import addresses, server
from klutchctl.sandbox.nodes.addresses import Nodes
from klutchctl.sandbox.state import Layout, State
from reconciler.core.errors import HostError

_INTERFACES: Final = Path("/sys/class/net")


@contextmanager
def alone() -> Iterator[None]:
    """Hold off all sandboxes of this machine: a network is chosen and taken by one at a time.

    The lock is on what lists the interfaces of this machine, and leaves nothing behind.
    """
    interfaces = os.open(_INTERFACES, os.O_RDONLY)
    try:
        fcntl.flock(interfaces, fcntl.LOCK_EX)
        yield
    finally:
        os.close(interfaces)


def choose(layout: Layout, remembered: Iterable[Nodes]) -> Nodes:
    """Return a network that is neither this machine's nor a sandbox's. Raises HostError."""
    remove(layout)  # of a run that was killed before it remembered its network
    routes = [one for one, _ in _routes()]
    found = addresses.choose([*routes, *(one.network for one in remembered)])
    if found is None:
        raise HostError(
            "no network is left for nodes: this machine reaches others in all of 10.96.0.0 to"
            " 10.126.0.0, 198.18.0.0 and 198.19.0.0",
            hint="`ip route` lists them; disconnect a VPN, or delete a sandbox with nodes",
        )
    return Nodes(found)


def ensure(layout: Layout, state: State) -> None:
    """Make the bridge, or what it lacks. Raises HostError, also for what is another's."""
    nodes, bridge = state.nodes, server.bridge(layout)
    assert nodes is not None
    _check_routes(layout, nodes)
    with ExitStack() as undone:
        if not (_INTERFACES / bridge).exists():
            undone.callback(remove, layout)
            # A bridge without an address of its own takes one of its ports, which come and go.
            own = bytes.fromhex(server.digest(layout)).hex(":")
            _ip("link", "add", bridge, "address", f"02:00:{own}", "type", "bridge")
        _complete(bridge, nodes, state)
        _check_port(nodes)
        undone.pop_all()


def _complete(bridge: str, nodes: Nodes, state: State) -> None:
    """Give the bridge its addresses and routes."""
    wanted = [f"{nodes.gateway}/24", *(f"{one.address}/32" for one in state.members)]
    has = {
        f"{one['local']}/{one['prefixlen']}"
        for link in _asked("addr", "show", "dev", bridge)
        for one in link["addr_info"]
    }
    for address in wanted:
        if address not in has:
            _ip("addr", "add", address, "dev", bridge)
    _ip("link", "set", bridge, "up")
    for member in state.members:
        way = ("via", nodes.node(member.address), "dev", bridge)
        _ip("route", "replace", nodes.pods(member.address), *way)


def _check_routes(layout: Layout, nodes: Nodes) -> None:
    """Raise HostError where the machine has a part of the network by another interface."""
    own = server.bridge(layout)
    for network, interface in _routes():
        if interface != own and addresses.overlaps(network, nodes.network):
            raise HostError(
                f"the network {nodes.network} of this sandbox's nodes is taken: this machine"
                f" reaches {network} by {interface}",
                hint=f"Disconnect that, use another --name, or start afresh: {layout.removal}",
            )


def _check_port(nodes: Nodes) -> None:
    """Raise HostError where a program has the port of API servers at all addresses."""
    if not processes.is_port_free(addresses.PORT, nodes.gateway):
        holder = processes.port_holder(addresses.PORT) or "another program"
        raise HostError(
            f"port {addresses.PORT} of all addresses of this machine is held by {holder}, and API"
            " servers of clusters with nodes need it at theirs",
            hint="Stop that program, or let it listen at addresses of its own",
        )


def remove(layout: Layout) -> None:
    """Remove the bridge, if it is there."""
    bridge = server.bridge(layout)
    if (_INTERFACES / bridge).exists():
        _ip("link", "del", bridge)


def _routes() -> Iterator[tuple[str, str]]:
    """Yield the networks that this machine reaches, and by which interface."""
    for route in _asked("route", "show", "table", "all"):
        if route["dst"] != "default" and route.get("type") != "multicast":
            yield route["dst"], route.get("dev") or f"a route of type {route.get('type')}"


def _asked(*question: str) -> list[Any]:
    return [one for one in json.loads(_ip("-4", "-json", *question) or "[]") if one]


def _ip(*arguments: str) -> str:
    command = shutil.which("ip", path=server.PATH)
    assert command is not None
    done = subprocess.run((command, *arguments), capture_output=True, text=True)
    if done.returncode != 0:
        raise HostError(
            f"`ip {' '.join(arguments)}` fails: {done.stderr.strip()}",
            hint="Nodes need a kernel with bridges, and the right to make network interfaces",
        )
    return done.stdout
