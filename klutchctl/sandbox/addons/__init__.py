"""Lists the add-ons of a sandbox, in the order of their start."""

from collections.abc import Iterator
from typing import Final

from klutchctl.sandbox.addons import agents, keycloak, monitoring, services
from klutchctl.sandbox.addons.addon import Addon, Kit, Request
from klutchctl.sandbox.report import Progress
from klutchctl.sandbox.servers import Server
from klutchctl.sandbox.state import Layout, State

ADDONS: Final = (services.ADDON, keycloak.ADDON, monitoring.ADDON, agents.ADDON)


def find(request: Request) -> dict[str, Kit | None]:
    """Return the kits of add-ons that are chosen now or remembered; None for those to end.

    Raises HostError for the first one that lacks something here.
    """
    kits: dict[str, Kit | None] = {}
    for addon in ADDONS:
        chosen = request.chosen.get(addon.name)
        if chosen is False:
            kits[addon.name] = None
        elif chosen or request.remembers(addon.name):
            kits[addon.name] = addon.find(request)
    return kits


def provide(
    kits: dict[str, Kit | None], request: Request, progress: Progress
) -> dict[str, Kit | None]:
    """Return the kits whole, with the parts that have to be built or fetched for them."""
    whole = {one.name: one.provide for one in ADDONS}
    return {name: kit and whole[name](kit, request, progress) for name, kit in kits.items()}


def of(state: State) -> Iterator[Addon]:
    """Yield the add-ons that a sandbox has."""
    return (addon for addon in ADDONS if getattr(state, addon.name) is not None)


def servers(layout: Layout, state: State) -> tuple[Server, ...]:
    """Return the servers of all add-ons, as far as the state knows them."""
    return tuple(one for addon in of(state) for one in addon.servers(layout, state, None))
