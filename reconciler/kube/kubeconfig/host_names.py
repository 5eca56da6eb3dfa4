"""Which names of hosts can be asked for. Pure."""


def can_be_asked(host: str) -> bool:
    """Tell whether a host's address can be looked up, and its certificate be checked.

    Both encode the name first, which fails for an empty label or one of more than 63 characters.
    """
    try:
        host.encode("idna")
    except UnicodeError:
        return False
    return True
