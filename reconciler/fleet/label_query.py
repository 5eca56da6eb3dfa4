"""A label selector in one line of text, as kubectl takes it: `env=prod,region in (eu,us),!beta`.

Like in Kubernetes, `!=` and `notin` also hold for what has no such label.
"""

import re
from collections.abc import Sequence
from typing import Final

from reconciler.core.errors import ConfigError
from reconciler.fleet import formats, wording
from reconciler.fleet.documents import Expression, Selector

_BETWEEN: Final = re.compile(r",(?![^(]*\))")  # no comma inside parentheses
_WORD: Final = r"[^\s,()!=<>]+"
_ABSENT: Final = re.compile(rf"!\s*(?P<key>{_WORD})")
_PRESENT: Final = re.compile(rf"(?P<key>{_WORD})")
_EQUAL: Final = re.compile(rf"(?P<key>{_WORD})\s*(?P<operator>==?|!=)\s*(?P<value>({_WORD})?)")
_AMONG: Final = re.compile(rf"(?P<key>{_WORD})\s+(?P<operator>in|notin)\s*\((?P<values>[^()]*)\)")
_HINT: Final = "Write it as for kubectl: env=prod,region in (eu,us),tier!=gold,!beta"


def parse(text: str) -> Selector:
    """Return the selector of clusters that `text` means.

    Raises ConfigError for what is no selector. An empty one is none: where a script lost its
    value, it must not mean every cluster.
    """
    return Selector(match_expressions=[_expression(part.strip()) for part in _BETWEEN.split(text)])


def _expression(text: str) -> Expression:
    if found := _ABSENT.fullmatch(text):
        return _checked(found["key"], "DoesNotExist", [])
    if found := _PRESENT.fullmatch(text):
        return _checked(found["key"], "Exists", [])
    if found := _EQUAL.fullmatch(text):
        operator = "NotIn" if found["operator"] == "!=" else "In"
        return _checked(found["key"], operator, [found["value"]])
    if found := _AMONG.fullmatch(text):
        operator = "NotIn" if found["operator"] == "notin" else "In"
        return _checked(found["key"], operator, [one.strip() for one in found["values"].split(",")])
    said = wording.quoted(text) if text else "an empty part"
    raise ConfigError(f"{said} is no condition on a label", hint=_HINT)


def _checked(key: str, operator: str, values: Sequence[str]) -> Expression:
    problem = formats.LABEL_KEY.problem_of(key)
    if problem or len(key.rpartition("/")[2]) > formats.LABEL_VALUE.most:
        raise ConfigError(f"{wording.quoted(key)} is not a label key", hint=_HINT)
    for value in values:
        if problem := formats.LABEL_VALUE.problem_of(value):
            raise ConfigError(f"{wording.quoted(value)} {problem}", hint=_HINT)
    return Expression.model_validate({"key": key, "operator": operator, "values": list(values)})
