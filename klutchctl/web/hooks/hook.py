"""Parses webhook options: a name, a provider, and the file of the secret."""

import logging
import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from klutchctl.web.hooks.decide import Provider
from reconciler.core.errors import ConfigError
from reconciler.core.secret import Secret
from reconciler.files import LastGood, read_secret
from reconciler.web import standard_webhooks

_log = logging.getLogger(__name__)
_NAME: Final = re.compile("[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?")
_OPTION: Final = "--hook"
_HINT: Final = "Make one with `openssl rand -hex 32`"


@dataclass(frozen=True, slots=True)
class Hook:
    """A webhook, received at /hooks/NAME."""

    name: str
    provider: Provider
    file: Path


def secret_reader(hook: Hook) -> Callable[[], Secret | None]:
    """Return a function that reads the secret from its file again.

    There is none while the file cannot be used: an old secret may have been taken away because
    others know it. What is wrong is logged once. Polls go on meanwhile.
    """

    def read() -> Secret | None:
        try:
            return secret_of(hook)
        except ConfigError as error:
            fields = {"hook": hook.name, "reason": error.message}
            _log.warning("a webhook is refused: its secret cannot be used", extra=fields)
            return None

    return LastGood((hook.file,), read, time.monotonic, lambda _: None, every=0.0).current


def parse_hook(text: str) -> Hook:
    """Return the hook that `NAME=PROVIDER:SECRETFILE` describes.

    Raises ConfigError, also for a secret that cannot be used. The text is not quoted: a person may
    have put the secret itself there.
    """
    name, equals, rest = text.partition("=")
    provider, colon, file = rest.partition(":")
    if not equals or not colon or not file:
        raise ConfigError("this is not NAME=PROVIDER:SECRETFILE", where=_OPTION)
    if not _NAME.fullmatch(name):
        message = "NAME is not made of a-z, 0-9 and inner dashes, 40 of them at most"
        raise ConfigError(message, where=_OPTION)
    if provider not in {*Provider}:
        raise ConfigError(
            f"PROVIDER is not one of {', '.join(Provider)}", where=f"{_OPTION} {name}"
        )
    hook = Hook(name, Provider(provider), Path(file))
    secret_of(hook)
    return hook


def parse_hooks(texts: Iterable[str]) -> tuple[Hook, ...]:
    """Return the hooks of all options. Raises ConfigError, also for a name that comes twice."""
    hooks: dict[str, Hook] = {}
    for hook in map(parse_hook, texts):
        if hook.name in hooks:
            raise ConfigError("this name is there twice", where=f"{_OPTION} {hook.name}")
        hooks[hook.name] = hook
    return tuple(hooks.values())


def secret_of(hook: Hook) -> Secret:
    """Return the secret of a hook. Raises ConfigError."""
    where = f"{_OPTION} {hook.name}"
    secret = read_secret(hook.file, where)
    try:
        signs = hook.provider in (Provider.GITLAB, Provider.GENERIC)
        key = standard_webhooks.key_of(secret) if signs else secret.reveal().encode()
    except ValueError as error:
        raise ConfigError(f"{hook.file}: {error}", where=where) from None
    if fault := standard_webhooks.length_fault(key):
        raise ConfigError(f"{hook.file} {fault}", where=where, hint=_HINT)
    return secret
