"""YAML as kubectl reads it, with places, and without surprises."""

import pytest

from reconciler.core import yaml_text
from reconciler.core.errors import ConfigError, Origin
from reconciler.core.yaml_text import UnreadableText, read_all
from tests.support.kubeconfigs import leaks

# What sigs.k8s.io/yaml 1.6.0 makes of `v: <text>`.
SCALARS = {
    "abc": "abc",
    "2026-01-01": "2026-01-01",
    "2026-01-01T10:00:00Z": "2026-01-01T10:00:00Z",
    "12:30:45": "12:30:45",
    "=": "=",
    "1.2.3": "1.2.3",
    "0b": "0b",
    "0o8": "0o8",
    "_1": "_1",
    "1e999": "1e999",
    "0xFFFFFFFFFFFFFFFFF": "0xFFFFFFFFFFFFFFFFF",
    "'1'": "1",
    '"true"': "true",
    '""': "",
    "| \n  a\n  b": "a\nb\n",
    "0": 0,
    "-0x1F": -31,
    "010": 8,
    "0o10": 8,
    "0b101": 5,
    "1_000": 1000,
    "089": 89.0,
    "1e3": 1000.0,
    ".5": 0.5,
    ".5_0": 0.5,
    "+1.": 1.0,
    "18446744073709551615": 18446744073709551615,
    "18446744073709551616": 18446744073709551616.0,
    "y": True,
    "On": True,
    "TRUE": True,
    "n": False,
    "off": False,
    "tRue": "tRue",
    "~": None,
    "": None,
    "Null": None,
}
MISTAKES = {
    "a tab": ("a:\n  b: 1\n\tc: 2\n", 3, "It begins with a tab: indent with spaces"),
    "a tab behind spaces": ("a:\n  b: 1\n  \tc: 2\n", 3, "It begins with a tab"),
    "a variable without quotes": ("a: {b: ${vars.x}}\n", 1, "Put a value with ${...} in quotes"),
    "a template of another tool": ("a: {{ .Values.cp }}\n", 1, "{{ }} is filled in by other tools"),
    "a brace that stays open": (
        "kind: A\nspec: {a: 1, b: 2\nmore: 3\n", 3,
        "Line 2 opens { in column 7, and does not close it: add }",
    ),
    "a bracket that stays open, behind closed ones": (
        "a: [1]\nb: {c: [1, 2}\nd: 1\n", 2, "",
    ),
    "a bracket in a comment or in quotes is none": (
        "a: '['\nb: 1 # [\n c: 2\n", 3, "'c' begins in column 2",
    ),
    "indented by one more": (
        "spec:\n  a:\n    b: 1\n   c: 2\n", 4,
        "'c' begins in column 4, where no line above does: keys of one mapping share theirs",
    ),
    "indented by one more than its neighbour": (
        "spec:\n  a: {b: 1}\n   c: 2\n", 3,
        "'c' begins in column 4, and line 2 in column 3: keys of one mapping begin in the same one",
    ),
    "what is no key is not quoted": (
        "spec:\n  a:\n    b: 1\n   hunter2: 2\n", 4, "It begins in column 4, where no line above",
    ),
    "a document that is not parted from the one before": (
        "kind: A\nspec: {}\nkind: B\n", 3, "It is in line 1 too: a line with --- goes between",
    ),
    "a key twice further in": ("a:\n  kind: 1\n  kind: 2\n", 3, "It is in line 2 too: keep one"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "want"), SCALARS.items(), ids=SCALARS.keys())
def test_scalars_mean_what_they_mean_to_kubectl(text, want):
    value = yaml_text.read(f"v: {text}\n".encode(), "f").plain()["v"]
    assert (type(value), value) == (type(want), want)


DOCUMENTS = {
    "nothing at all": (b"", {}),
    "only a comment": (b"# hello\n", {}),
    "null": (b"~\n", {}),
    "JSON": (b'{"a":[1,"x",{"b":null}]}', {"a": [1, "x", {"b": None}]}),
    "JSON with tabs": (b'{\n\t"a":\t[1,\n\t\t2]\n}', {"a": [1, 2]}),
    "a byte order mark": (b"\xef\xbb\xbfa: 1\n", {"a": 1}),
    "one document with its markers": (b"---\na: 1\n...\n", {"a": 1}),
    "keys are taken as written": (b"1: a\ntrue: b\n", {"1": "a", "true": "b"}),
}


@pytest.mark.parametrize(("content", "want"), DOCUMENTS.values(), ids=DOCUMENTS.keys())
def test_documents(content, want):
    assert yaml_text.read(content, "f").plain() == want


REFUSED = {
    "a syntax error": (b"a: 1\nb: [canary, 2\n", "f:3:1: not YAML"),
    "a tab": (b"a:\n\tcanary: 1\n", "f:2:1: not YAML"),
    "a carriage return alone": (b"a: 1\rb: canary\n", "f:1:5: a line break that versions"),
    "a line separator": ("\ufeffa: 1\nb: 'ä\u2028canary'\n".encode(), "f:2:6: a line break"),
    "a next line": ("# ä\x85canary\n".encode(), "f:1:4: a line break that versions"),
    "a control character": (b"x: \xc3\xa4\na: canary\x01\n", "f:2:10: not YAML"),
    "what is not UTF-8": (b"a: 1\nb: canary\xff\n", "f:2:10: not UTF-8"),
    "an alias": (b"a: &x canary\nb: *x\n", "f:2:4: aliases"),
    "a merge key": (b"a: {b: 1}\n<<: {canary: 1}\n", "f:2:1: merge keys"),
    "a tag": (b"a: !!python/name:canary x\n", "f:1:4: tags"),
    "a harmless tag": (b"a: !!str 1\n", "f:1:4: tags"),
    "a tag on a list": (b"a: !!set [canary]\n", "f:1:4: tags"),
    "a key that is there twice": (b"canary: 1\nb: 2\ncanary: 3\n", "f:3:1: this key is there"),
    "a key that is a list": (b"? [canary]\n: 1\n", "f:1:3: a key must be text"),
    "a second document": (b"a: 1\n---\nb: canary\n", "f:2:1: only one document"),
    "text in place of a mapping": (b"canary\n", "f:1:1: the document must be a mapping"),
    "a list in place of a mapping": (b"- canary\n", "f:1:1: the document must be a mapping"),
    "what is too large": (b"a: canary" + b" " * (1 << 20), "f: larger than"),
    "what is too deep": (b"a: " + b"[" * 100 + b"canary", "f:1:67: nested deeper than 64"),
    "a bomb of brackets": (b"[" * (1 << 20), "f:1:65: nested deeper than 64"),
    "a bomb of aliases": (b"a: &a [x,x]\nb: &b [*a,*a]\nc: &c [*b,*b]\n", "f:2:8: aliases"),
}


@pytest.mark.parametrize(("content", "want"), REFUSED.values(), ids=REFUSED.keys())
def test_refused(content, want):
    with pytest.raises(ConfigError) as caught:
        yaml_text.read(content, "f")
    assert str(caught.value).startswith(want)
    assert leaks(caught.value, ("canary",)) == []


FIELDS = yaml_text.read(
    b"""text: x
empty: ""
nothing:
number: 1
flag: yes
date: 2026-01-01
list: [a, b]
mixed: [a, 1]
mapping: {k: v}
nul: "a\\0b"
""",
    "f",
)
READ = {
    "text": (FIELDS.text("text"), "x"),
    "a date is text": (FIELDS.text("date"), "2026-01-01"),
    "absent text": (FIELDS.text("absent"), ""),
    "empty text": (FIELDS.text("empty"), ""),
    "a flag": (FIELDS.flag("flag"), True),
    "an absent flag": (FIELDS.flag("absent"), False),
    "a list of texts": (FIELDS.texts("list"), ("a", "b")),
    "a null list, as Go writes an empty one": (FIELDS.texts("nothing"), ()),
    "a null mapping": (FIELDS.section("nothing"), None),
    "null says nothing": (FIELDS.has("nothing"), False),
    "empty text says nothing": (FIELDS.has("empty"), False),
    "an empty mapping would say something": (FIELDS.has("mapping"), True),
    "the place of a value": (str(FIELDS.at("flag")), "f:5:7"),
    "the place of an absent value": (FIELDS.at("absent"), Origin("f", 1, 1)),
}


@pytest.mark.parametrize(("got", "want"), READ.values(), ids=READ.keys())
def test_fields(got, want):
    assert got == want


UNFIT = {
    "a number for text": lambda: FIELDS.text("number"),
    "a flag for text": lambda: FIELDS.text("flag"),
    "nothing for text": lambda: FIELDS.text("nothing"),
    "a list for text": lambda: FIELDS.text("list"),
    "text for a flag": lambda: FIELDS.flag("text"),
    "a number in a list of texts": lambda: FIELDS.texts("mixed"),
    "text for a list": lambda: FIELDS.texts("text"),
    "a mapping for a list": lambda: FIELDS.sections("mapping"),
    "a list for a mapping": lambda: FIELDS.section("list"),
    "a NUL in text": lambda: FIELDS.text("nul"),
}


def test_a_value_of_another_shape_is_refused(refusals):
    refusals("unfit", UNFIT)


def test_a_number_that_json_lacks_is_refused():
    with pytest.raises(ConfigError, match=r"^f:1:4: JSON has no such number$"):
        yaml_text.read(b"v: .inf\n", "f").plain()


def test_no_repr_shows_text():
    assert "canary" not in repr(yaml_text.read(b"canary: [canary, {a: canary}]\n", "f"))


@pytest.mark.parametrize(("text", "line", "hint"), MISTAKES.values(), ids=MISTAKES.keys())
def test_a_mistake(text, line, hint):
    with pytest.raises(UnreadableText) as refused:
        read_all(text.encode(), "f")
    assert refused.value.origin.line == line
    assert refused.value.hint.startswith(hint)
    assert bool(refused.value.hint) is bool(hint)
