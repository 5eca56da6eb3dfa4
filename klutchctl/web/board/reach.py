"""Decides whether the board may listen at an address. Pure."""

import typer

from reconciler.core.addresses import is_loopback_name


def by_others(address: tuple[str, int], *, behind_proxy: bool, option: str, permit: str) -> bool:
    """Return whether others than this machine reach an address, past the proxy in front of it.

    `option` gave the address, and `permit` says that there is such a proxy, which authenticates.

    Raises:
        BadParameter: others reach it, and no proxy is said to be there.
    """
    if is_loopback_name(address[0]):
        return False
    if not behind_proxy:
        raise typer.BadParameter(
            "the board has no login, and others reach this address: a proxy that authenticates "
            f"has to stand in front of it. Give {permit} where one does",
            param_hint=f"'{option}'",
        )
    return True
