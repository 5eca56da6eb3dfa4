"""The list of keys that may sign, in the format of ALLOWED SIGNERS in ssh-keygen(1).

It decides who is trusted, so a line that is not understood makes the whole list useless: what
it was to say, and of which key, is unknown.
"""

import base64
import binascii
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from reconciler.source.signature import Refused, shown
from reconciler.source.sshsig.keys import PublicKey, public_key
from reconciler.source.sshsig.wire import Reader

_BLANK: Final = " \t"
_OPTION: Final = re.compile(r'([A-Za-z-]+)(?:="((?:[^"\\]|\\.)*)")?(?:,|$)', re.ASCII)
_TIME: Final = re.compile(r"([0-9]{8})(?:([0-9]{4})([0-9]{2})?)?(Z?)", re.ASCII)
_KNOWN: Final = frozenset({"namespaces", "valid-after", "valid-before"})
_MOST_BYTES: Final = 1 << 20
_PATTERN_PARTS: Final = {"*": ".*", "?": "."}


@dataclass(frozen=True, slots=True)
class AllowedSigner:
    """A line. `principals` and `namespaces` are lists of patterns; None allows all namespaces."""

    line: int
    principals: str
    blob: bytes
    key: PublicKey
    namespaces: str | None = None
    valid_after: datetime | None = None
    valid_before: datetime | None = None

    def refusal(self, principal: str, namespace: str, times: Sequence[datetime]) -> str:
        """Return why this key may not sign for a principal at these times; "" where it may."""
        if not matches(principal, self.principals):
            return f"is by a key that is not one of {shown(principal)}"
        if self.namespaces is not None and not matches(namespace, self.namespaces):
            return f"is by a key that may not sign in namespace {shown(namespace)}"
        if self.valid_after is not None and min(times) < self.valid_after:
            after = self.valid_after.isoformat()
            return f"is by a key of {shown(principal)} that is valid only after {after}"
        if self.valid_before is not None and max(times) > self.valid_before:
            before = self.valid_before.isoformat()
            return f"is by a key of {shown(principal)} that was valid before {before}"
        return ""


def parse(text: bytes) -> tuple[AllowedSigner, ...]:
    """Return the lines of a list. Raises Refused, with the number of the line."""
    if len(text) > _MOST_BYTES:
        raise Refused(f"has more than {_MOST_BYTES >> 20} MiB")
    try:
        lines = text.decode("utf-8").split("\n")
    except UnicodeDecodeError:
        raise Refused("is not text in UTF-8") from None
    found = []
    for number, line in enumerate(lines, 1):
        content = line.rstrip("\r").strip(_BLANK)
        if not content or content.startswith("#"):
            continue
        try:
            found.append(_signer(number, content))
        except Refused as error:
            raise Refused(f"line {number} {error.why}") from None
    if not found:
        raise Refused("lists no key")
    return tuple(found)


def matches(text: str, patterns: str) -> bool:
    """Decide whether a text matches a list of patterns, as PATTERNS in ssh_config(5) says.

    One that matches after "!" refuses, whatever else matches.
    """
    found = False
    for pattern in patterns.split(","):
        wanted = pattern.removeprefix("!")
        expression = "".join(_PATTERN_PARTS.get(one, re.escape(one)) for one in wanted)
        if re.fullmatch(expression, text, re.DOTALL):
            if wanted != pattern:
                return False
            found = True
    return found


def _signer(number: int, content: str) -> AllowedSigner:
    principals, rest = _word(content)
    written, blob = "", _key_blob(rest)
    if blob is None:
        written, rest = _word(rest)
        blob = _key_blob(rest)
    if blob is None:
        raise Refused("is not `principals [options] type base64-key [comment]`")
    options = _options(written)
    after, before = _time(options, "valid-after"), _time(options, "valid-before")
    if after is not None and before is not None and before <= after:
        raise Refused("ends the time of its key before that begins")
    return AllowedSigner(
        number, principals, blob, public_key(blob), options.get("namespaces"), after, before
    )


def _word(text: str) -> tuple[str, str]:
    """Return the first word, and what follows it: blanks within quotes do not end a word."""
    end, quoted = 0, False
    while end < len(text) and (quoted or text[end] not in _BLANK):
        if text[end] == "\\" and quoted:
            end += 1
        elif text[end] == '"':
            quoted = not quoted
        end += 1
    if quoted:
        raise Refused("has a quote without an end")
    word = text[:end]
    whole = word[1:-1] if word.startswith('"') and word.endswith('"') else word
    return whole, text[end:].lstrip(_BLANK)


def _key_blob(text: str) -> bytes | None:
    """Return the key that a text begins with, or None where it begins with something else."""
    name, _, rest = text.replace("\t", " ").partition(" ")
    encoded = rest.lstrip(" ").partition(" ")[0]
    try:
        blob = base64.b64decode(encoded, validate=True)
        return blob if name and Reader(blob).string() == name.encode() else None
    except (binascii.Error, ValueError, Refused):
        return None


def _options(text: str) -> Mapping[str, str]:
    found: dict[str, str] = {}
    position = 0
    while position < len(text):
        option = _OPTION.match(text, position)
        if option is None or text.endswith(","):
            raise Refused('has options that are not `name` or `name="value"` with commas between')
        name, value = option[1].lower(), option[2]
        if name == "cert-authority":
            raise Refused(
                "is a cert-authority: certificates are not accepted, list keys themselves"
            )
        if name not in _KNOWN or value is None or name in found:
            raise Refused(f"has option {shown(name)} without a value, twice, or it is unknown")
        found[name] = re.sub(r"\\(.)", r"\1", value)
        position = option.end()
    return found


def _time(options: Mapping[str, str], name: str) -> datetime | None:
    """Return the time of an option: in UTC with a "Z", else in the time zone of this machine."""
    text = options.get(name)
    if text is None:
        return None
    parts = _TIME.fullmatch(text)
    try:
        if parts is None:
            raise ValueError
        digits = parts[1] + (parts[2] or "0000") + (parts[3] or "00")
        at = datetime.strptime(digits, "%Y%m%d%H%M%S")  # noqa: DTZ007 - the zone follows
        return at.replace(tzinfo=UTC) if parts[4] else at.astimezone(UTC)
    except (ValueError, OverflowError):
        raise Refused(f"has {name} that is not YYYYMMDD[HHMM[SS]][Z]") from None
