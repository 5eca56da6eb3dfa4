"""What a person most likely meant where text is not YAML."""

import pytest

from reconciler.core.yaml_text import UnreadableText, read_all

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


@pytest.mark.parametrize(("text", "line", "hint"), MISTAKES.values(), ids=MISTAKES.keys())
def test_a_mistake(text, line, hint):
    with pytest.raises(UnreadableText) as refused:
        read_all(text.encode(), "f")
    assert refused.value.origin.line == line
    assert refused.value.hint.startswith(hint)
    assert bool(refused.value.hint) is bool(hint)
