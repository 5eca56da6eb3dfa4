"""What an API server refuses, in its words and without the values that it quotes. Pure.

Validation quotes what was sent: `spec.size: Invalid value: "hunter2": must be ...`. That lands in
conditions, reports and logs, which others read than those who may read the object. The name of
the field, the kind of mistake and the rule say as much to the writer.

Sources: field.Error of k8s.io/apimachinery, structured-merge-diff and json-iterator, as answers
of kube-apiserver 1.36.3 that the contract tests repeat.
"""

import json
import re
from typing import Final

from reconciler.core.manifest import Manifest, get_map, get_maps, get_text
from reconciler.core.secret import HIDDEN, scrub

_QUOTED: Final = r'"(?:[^"\\]|\\.)*"'
_PLAIN: Final = re.compile(rf"({_QUOTED}|-?[0-9][-+.0-9a-zA-Z]*|true|false|null)(?=: |$)")
_WITH_VALUE: Final = "Invalid value|Unsupported value|Duplicate value|Not found|Too many|Too few"
_INVALID: Final = " is invalid: "
# A value as Go writes it: `map[string]interface {}{...`, `[]v1.X{...`, `&x.Y{...`.
_GO_VALUE: Final = re.compile(r"[&*(\[{<]|[\w.*\[\]]+(?: \{\})?[\[{(]")
_IN_TEXT: Final = re.compile(rf"({_WITH_VALUE}): {_QUOTED}")
# What was decoded instead: a Go value, or the bytes around the place.
_GOT: Final = re.compile(r"got &.*?(?=\n|$)")
_CONTEXT: Final = re.compile(r",? ?error found in #.*", re.DOTALL)


def unquoted(status: Manifest) -> str:
    """Return the sentence of a Status object without the values that it quotes."""
    text = get_text(status, "message")
    causes = get_maps(get_map(status, "details"), "causes")
    if get_text(status, "reason") == "Invalid" and causes:
        head, separator, _ = text.partition(_INVALID)
        sentences = "; ".join(dict.fromkeys(_cause(cause) for cause in causes))
        return f"{head}{_INVALID}{sentences}" if separator else sentences
    text = _IN_TEXT.sub(rf"\1: {HIDDEN}", text)
    return _CONTEXT.sub("", _GOT.sub("got something else", text))


def _cause(cause: Manifest) -> str:
    field, text = get_text(cause, "field"), get_text(cause, "message")
    kind, _, rest = text.partition(": ")
    if re.fullmatch(_WITH_VALUE, kind):
        value, rule = _value_and_rule(rest)
        # What is unsupported is none of the words that are listed behind it.
        rule = rule if kind == "Unsupported value" else scrub(rule, (value,))
        text = f"{kind}: {rule}" if rule else kind
    return f"{field}: {text}" if field and field != "<nil>" else text


def _value_and_rule(text: str) -> tuple[str, str]:
    """Split `text` into the value that it begins with and the rule behind; "" where none is sure.

    The rules that a CRD brings have no value: `Invalid value: size is immutable`.
    """
    plain = _PLAIN.match(text)
    if plain is not None:
        return plain[0].strip('"'), text[plain.end() :].removeprefix(": ")
    try:
        _, end = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError):
        return "", "" if text.startswith('"') or _GO_VALUE.match(text) else text
    if text[end:] and not text.startswith(": ", end):
        return "", ""
    return text[:end], text[end:].removeprefix(": ")
