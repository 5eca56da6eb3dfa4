"""JSON that a parser of YAML reads as what it says. Pure.

An API server reads the body of an apply as YAML, of which JSON is nearly a part: YAML knows no
control characters, ends lines at more characters and makes blanks of that, and a key of more than
1024 characters has to be announced.
"""

import re
from typing import Final

# DEL and C1 (with NEL, an end of a line), the separators of lines and paragraphs, the byte order
# mark, U+FFFE and U+FFFF, in UTF-8.
_ODD: Final = re.compile(
    rb"\x7f|\xc2[\x80-\x9f]|\xe2\x80[\xa8\xa9]|\xef\xbb\xbf|\xef\xbf[\xbe\xbf]"
)
_LONG: Final = 1000  # octets, with quotes
_TEXT: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"(:?)', re.DOTALL)


def as_yaml(text: bytes) -> bytes:
    """Return compact JSON in a form that says the same in YAML."""
    plain = _ODD.sub(_escaped, text)
    return _TEXT.sub(_announced, plain) if _may_have_a_long_key(plain) else plain


def _escaped(match: re.Match[bytes]) -> bytes:
    return b"\\u%04x" % ord(match[0].decode())


def _may_have_a_long_key(text: bytes) -> bool:
    """Tell it in a hundredth of the time that it takes to look at each text."""
    return any(len(part) >= _LONG - 2 or part.endswith(b"\\") for part in text.split(b'":'))


def _announced(match: re.Match[bytes]) -> bytes:
    return b"? " + match[0] if match[1] and len(match[0]) > _LONG else match[0]
