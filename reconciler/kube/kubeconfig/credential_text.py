"""The forms of tokens, certificates and keys: to judge them, and not to show them. Pure.

Each `..._fault` says what is wrong as the end of a sentence ("is ..."), or "" where all is
well. None of them quotes the text.
"""

import base64
import binascii
import functools
import re
import ssl
from pathlib import PurePath
from typing import Final

_ENCRYPTED_HEADER: Final = "Proc-Type: 4,ENCRYPTED"
_NAME: Final = re.compile(r"[\w.@:/+-]{1,100}")
_LONG_PART: Final = re.compile(r"[\w+=-]{24,}")
_PATH_LIMIT: Final = 255
_REMEMBERED: Final = 64


def token_fault(token: str) -> str:
    """Judge a bearer token: it travels in an HTTP header, so it is visible ASCII."""
    if not token:
        return "is empty"
    if any(not "!" <= character <= "~" for character in token):
        return "holds spaces, line breaks or other characters that no token has"
    return ""


def certificates_fault(pem: str) -> str:
    """Judge PEM text that must hold at least one certificate, and may hold other blocks."""
    blocks = _blocks(pem)
    if blocks is None:
        return "is not valid PEM text"
    certificates = [block for label, block in blocks if label == "CERTIFICATE"]
    if not certificates:
        return "holds no PEM block BEGIN CERTIFICATE"
    return "" if _are_readable("".join(certificates)) else "holds a certificate that cannot be read"


# Many clusters may share one CA, and OpenSSL takes its time. Certificates are public, so they may
# stay in memory; the rest of the text, which may be a key, does not.
@functools.lru_cache(maxsize=_REMEMBERED)
def _are_readable(certificates: str) -> bool:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=certificates)
    except (ssl.SSLError, ValueError):
        return False
    return True


def key_fault(pem: str) -> str:
    """Judge PEM text that must hold a private key which needs no password."""
    blocks = _blocks(pem)
    if blocks is None:
        return "is not valid PEM text"
    keys = [(label, block) for label, block in blocks if label.endswith("PRIVATE KEY")]
    if not keys:
        return "holds no PEM block BEGIN PRIVATE KEY"
    if any(label.startswith("ENCRYPTED") or _ENCRYPTED_HEADER in block for label, block in keys):
        return "is protected by a password, and nobody is there to type it"
    return ""


def shown_name(name: str) -> str:
    """Quote a name from a file for a sentence, unless a token or key may have slipped in."""
    return f'"{name}"' if is_shown(name) else "(a name that is not shown)"


def is_shown(name: str) -> bool:
    """Tell whether a name is one, and no credential that somebody pasted."""
    return bool(_NAME.fullmatch(name)) and not _is_token_like(name)


def shown_path(path: PurePath) -> str:
    """Return a path for a sentence, unless a token or key was written in its place."""
    text = str(path)
    if len(text) <= _PATH_LIMIT and text.isprintable() and not _is_token_like(text):
        return text
    return "(a path that is not shown)"


def _is_token_like(text: str) -> bool:
    """Tell whether any part is long and mixes capitals, small letters and digits."""
    return any(
        re.search("[a-z]", part) and re.search("[A-Z]", part) and re.search("[0-9]", part)
        for part in _LONG_PART.findall(text)
    )


def _blocks(pem: str) -> list[tuple[str, str]] | None:
    """Split PEM text (RFC 7468) into labels and blocks, in one pass. None where it is broken."""
    if not pem.isascii():
        return None
    blocks: list[tuple[str, str]] = []
    label, lines = "", list[str]()
    for line in map(str.strip, pem.splitlines()):
        if line.startswith("-----BEGIN ") and line.endswith("-----"):
            if label:
                return None
            label, lines = line[11:-5], [line]
        elif label:
            lines.append(line)
            if line == f"-----END {label}-----":
                if not _is_base64("".join(part for part in lines[1:-1] if ":" not in part)):
                    return None
                blocks.append((label, "\n".join(lines) + "\n"))
                label = ""
    return None if label else blocks


def _is_base64(text: str) -> bool:
    try:
        return bool(base64.b64decode(text, validate=True))
    except binascii.Error:
        return False
