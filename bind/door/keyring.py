"""Keeps the keys of sealed texts, in a Secret that all replicas share."""

import asyncio
import base64
import binascii
import logging
import os
from collections.abc import Callable
from datetime import timedelta
from typing import Final, TypeVar

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from bind.door.identity import Refused
from bind.door.sessions import KEY_BYTES, Keys
from reconciler.blueprints.objects import UNMARKED, build
from reconciler.controller.tasks import Clock
from reconciler.core import keys, manifest, names, times
from reconciler.core.errors import ClusterError, Conflict
from reconciler.core.manifest import JSON, Manifest
from reconciler.core.refs import SECRET, Ref
from reconciler.kube.cluster import Cluster

log = logging.getLogger(__name__)

_PRESENT: Final = "present"
_FORMER: Final = "former"
_SINCE: Final = "since"
_LIFE: Final = timedelta(days=30)
_KEPT: Final = 60.0  # seconds without another look
_AGAIN: Final = 5.0  # seconds between two looks because a text could not be opened
_TRIES: Final = 5  # of replicas that make or renew the Secret at once

T = TypeVar("T")


class KeyRing:
    """The keys of one installation.

    `given` comes from the original's flags, and no Secret is used then. Any replica makes the
    Secret, and renews it after 30 days; the key before it still opens what it sealed. An operator
    who deletes it revokes all that was sealed: within a minute, no replica opens it any more.
    """

    def __init__(
        self, cluster: Cluster, namespace: str, *, clock: Clock, given: bytes = b""
    ) -> None:
        self._cluster, self._clock = cluster, clock
        self._ref = Ref(cluster.name, SECRET, namespace, names.DOOR_KEYS)
        self._keys: Keys | None = None
        self._fixed = bool(given)
        self._read_at = float("-inf")
        self._turn = asyncio.Lock()
        if given:
            derived = HKDF(algorithm=SHA256(), length=KEY_BYTES, salt=None, info=b"door")
            self._keys = Keys(derived.derive(given))

    async def keys(self) -> Keys:
        """Return the keys. Raises Refused where there are none and none can be made."""
        keys = self._keys
        if keys is not None and (self._turn.locked() or not self._is_older_than(_KEPT)):
            return keys  # a request with usable keys does not wait for the control plane
        return await self._looked(_KEPT)

    async def opened(self, look: Callable[[Keys], T | None]) -> T | None:
        """Return the result of `look`, after another look at the Secret where there is none.

        Another replica may have renewed the keys a moment ago. Raises Refused.
        """
        found = look(await self.keys())
        if found is None and self._is_older_than(_AGAIN):
            found = look(await self._looked(_AGAIN))
        return found

    def _is_older_than(self, seconds: float) -> bool:
        return not self._fixed and self._clock.monotonic() - self._read_at > seconds

    async def _looked(self, seconds: float) -> Keys:
        """Return the keys after a look at the Secret, which callers at one time share."""
        async with self._turn:
            if self._keys is None or self._is_older_than(seconds):
                await self._read()
        if self._keys is None:
            raise Refused("unavailable", _NO_KEYS, reason="keys")
        return self._keys

    async def _read(self) -> None:
        # After a failed read, the keys that were read before stay in use.
        try:
            live = await self._shared()
        except ClusterError as error:
            log.warning("the front door cannot read its cookie keys", extra={"why": str(error)})
        else:
            keys = _keys_in(live)
            if keys is None:
                log.error(
                    "the front door's Secret contains no key: delete the Secret",
                    extra={"secret": f"{self._ref.namespace}/{self._ref.name}"},
                )
            self._keys = keys or self._keys
        self._read_at = self._clock.monotonic()

    async def _shared(self) -> Manifest:
        """Return the Secret, once it is there and not too old. Raises ClusterErrors."""
        for left in reversed(range(_TRIES)):
            live = await self._cluster.get(self._ref)
            try:
                if live is None:
                    made = self._made()
                    return await self._cluster.create(made, SECRET, manager=keys.MANAGER_BACKEND)
                return await self._renewed(live) if self._is_old(live) else live
            except Conflict:
                if not left:  # else another replica was first
                    raise
        raise AssertionError("the last try returns or raises")

    def _made(self) -> Manifest:
        return build(
            SECRET,
            self._ref.name,
            namespace=self._ref.namespace,
            marks=UNMARKED,
            type="Opaque",
            data={_PRESENT: _base64(os.urandom(KEY_BYTES)), _SINCE: self._now()},
        )

    async def _renewed(self, live: Manifest) -> Manifest:
        version: dict[str, JSON] = {"resourceVersion": manifest.resource_version_of(live)}
        data: dict[str, JSON] = {
            _PRESENT: _base64(os.urandom(KEY_BYTES)),
            _FORMER: manifest.get(live, "data", _PRESENT),
            _SINCE: self._now(),
        }
        patch: Manifest = {"metadata": version, "data": data}
        return await self._cluster.merge_patch(self._ref, patch, manager=keys.MANAGER_BACKEND)

    def _is_old(self, live: Manifest) -> bool:
        """Return whether a key is due for renewal, as one is whose age nobody knows."""
        if _keys_in(live) is None:
            return False
        since = times.moment((_bytes(live, _SINCE) or b"").decode("ascii", "replace"))
        return since is None or abs(self._clock.now() - since) > _LIFE

    def _now(self) -> str:
        return _base64(times.format_time(self._clock.now()).encode())


_NO_KEYS: Final = "The front door has no keys. Try again. Its operator finds the reason in its log"


def _keys_in(live: Manifest) -> Keys | None:
    """Return the keys in a Secret; None where there are none."""
    present, former = _bytes(live, _PRESENT), _bytes(live, _FORMER)
    if present is None or len(present) != KEY_BYTES:
        return None
    return Keys(present, (former,) if former and len(former) == KEY_BYTES else ())


def _bytes(live: Manifest, key: str) -> bytes | None:
    try:
        return base64.b64decode(manifest.get_text(live, "data", key), validate=True)
    except (binascii.Error, ValueError):
        return None


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()
