"""The faults of a provider, of its answers, and of a token."""

from reconciler.core.errors import KlutchError


class ProviderFault(KlutchError):
    """The provider's own document cannot be used; its operator or its URL is at fault."""


class UnmetDemand(ProviderFault):
    """A provider demands what none of our clients does. That does not pass by itself."""


class GrantRefused(KlutchError):
    """A provider refused a grant (RFC 6749 5.2). `error` is its code, such as `access_denied`."""

    def __init__(self, error: str, description: str = "") -> None:
        self.error, self.description = error, description
        super().__init__(f"{error}: {description}" if description else error)


class TokenRefused(KlutchError):
    """A token proves nothing here. `reason` is one word for audit lines, such as `expired`."""

    def __init__(self, reason: str, message: str) -> None:
        self.reason = reason
        super().__init__(message)


class CredentialFault(KlutchError):
    """A credential of ours, such as a private key, cannot be used; its file is at fault."""


class UnknownKey(TokenRefused):
    """The key that signed the token is not in the key set: a newer key set may have it."""
