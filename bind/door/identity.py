"""Those who sign in: people and machines, as a provider vouches for them."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Identity:
    """An identity that a provider vouched for.

    `issuer` and `subject` say who it is; `user` and `groups` (with their prefixes) are what rules
    and the API server's authorisation know it by. `first` tells that `issuer` is the provider of
    `--oidc-issuer-url`, whose identities own spaces as the original's do (protocol-bind.md B.4).
    """

    issuer: str
    subject: str
    user: str
    groups: tuple[str, ...] = ()
    first: bool = True
