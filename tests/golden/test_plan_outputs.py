"""What people and programs see of a plan, to the byte."""

import pytest

from klutchctl.render import plan_json, plan_markdown, plan_text
from tests.golden.plans import PLANS

FORMATS = {
    "txt": plan_text.render,
    "color.txt": lambda plan: plan_text.render(plan, color=True, seconds=0.44),
    "json": plan_json.render,
    "md": plan_markdown.render,
}


@pytest.mark.parametrize("name", PLANS)
@pytest.mark.parametrize("extension", FORMATS)
def test_output(golden, name, extension):
    golden(FORMATS[extension](PLANS[name]), f"{name}.{extension}")
