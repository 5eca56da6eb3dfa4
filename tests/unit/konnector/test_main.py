"""The process: what it needs before it begins its work. How it ends: `test_agents`."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize("flag", ["--help", "--version"])
def test_help_and_version_need_nothing_that_is_heavy(flag):
    script = f"""
import sys
sys.argv = ["konnector", "{flag}"]
from konnector.__main__ import main
try:
    main()
finally:
    loaded = {{"aiohttp", "pydantic", "uvloop", "prometheus_client"}} & sys.modules.keys()
    print(sorted(loaded), file=sys.stderr)
"""
    run = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True, timeout=60
    )
    assert "konnector " in run.stdout
    assert run.stderr == "[]\n"
