"""Where a sandbox of a name lies, and which names none may have."""

from pathlib import Path

import pytest

from klutchctl.sandbox.state import Layout, layout_of
from reconciler.core.errors import ConfigError

LAYOUT = Layout(Path("/state/klutchctl/sandbox/default"))
NAMES = {
    "a word": ("default", True),
    "a dash inside": ("ci-7", True),
    "a path": ("../x", False),
    "nothing": ("", False),
    "capitals": ("A", False),
    "a leading dot, as locks have": (".default.lock", False),
    "too long": ("x" * 41, False),
    "a line break": ("a\n", False),
}


@pytest.mark.parametrize(("name", "usable"), NAMES.values(), ids=NAMES.keys())
def test_sandbox_names(name, usable):
    if usable:
        assert layout_of(name, state_home=Path("/state")).root == LAYOUT.root.parent / name
    else:
        with pytest.raises(ConfigError, match="--name"):
            layout_of(name, state_home=Path("/state"))
