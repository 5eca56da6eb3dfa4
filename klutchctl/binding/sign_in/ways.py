"""The ways to sign in, by flags."""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Self

from klutchctl.binding.run import Way
from klutchctl.binding.sign_in import tokens
from reconciler.core.errors import ConfigError
from reconciler.files import read_secret
from reconciler.oidc.grants import Client


@dataclass(frozen=True, slots=True, kw_only=True)
class Flags:
    """The flags of people and machines; of the latter, one credential at most."""

    no_browser: bool = False
    callback_port: int = 0
    device_code: bool = False
    client_id: str = ""
    client_secret_file: Path | None = None
    client_key_file: Path | None = None
    client_assertion_file: Path | None = None
    scope: Sequence[str] | None = None
    identity: str = ""
    exchange: bool = False
    issuer: str = ""

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        """Return the flags of a command line, by their names."""
        return cls(**{one.name: given[one.name] for one in fields(cls) if one.name in given})

    def way(self, show: Callable[[str], object] | None) -> Way:
        """Return the way to sign in; `show` opens a browser. Raises ConfigError."""
        if self.exchange and not self.identity:
            raise ConfigError("needs --identity", where="--exchange")
        if sum(map(bool, (self.device_code, self.identity, self.client_id and not self.exchange))):
            self._require_one()
        elif self._credentials or self.scope:
            raise ConfigError("a client's credential or scope needs --client-id")
        if self.issuer and not (self.device_code or self.client_id):
            needs = "needs --device-code, --client-id or --exchange: nothing else goes there"
            raise ConfigError(needs, where="--issuer")
        has_client = self.exchange or (self.client_id and not self.identity)
        return Way(
            port=self.callback_port,
            show=None if self.no_browser else show,
            device=self.device_code,
            client=self._client() if has_client else None,
            identity=tokens.parse(self.identity) if self.identity else None,
            scopes=tuple(self.scope or ()),
        )

    def _require_one(self) -> None:
        ways = {
            "--no-browser": self.no_browser or bool(self.callback_port),
            "--device-code": self.device_code,
            "--identity": bool(self.identity),
            "--client-id": bool(self.client_id) and not self.exchange,
        }
        chosen = [name for name, given in ways.items() if given]
        if len(chosen) > 1:
            raise ConfigError(f"{' and '.join(chosen)} exclude each other")
        if self.client_id and not self.exchange and len(self._credentials) != 1:
            hint = "Give --client-secret-file, --client-key-file or --client-assertion-file"
            raise ConfigError("needs one credential", where="--client-id", hint=hint)

    @property
    def _credentials(self) -> dict[str, Path]:
        files = {
            "secret": self.client_secret_file,
            "key": self.client_key_file,
            "assertion": self.client_assertion_file,
        }
        return {name: file for name, file in files.items() if file is not None}

    def _client(self) -> Client:
        if not self.client_id or len(self._credentials) > 1:
            raise ConfigError("needs --client-id, and one credential at most", where="--exchange")
        read = {
            name: read_secret(file, f"--client-{name}-file")
            for name, file in self._credentials.items()
        }
        return Client(self.client_id, **read)


def browser(environ: Mapping[str, str] = os.environ) -> Callable[[str], object] | None:
    """Return what opens a browser; None where there is no screen to open it on."""
    screen = environ.get("DISPLAY") or environ.get("WAYLAND_DISPLAY") or environ.get("BROWSER")
    if not screen and sys.platform not in ("darwin", "win32"):
        return None
    import webbrowser

    return webbrowser.open
