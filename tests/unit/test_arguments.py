"""Global options may stand anywhere; the rest keeps its order."""

import pytest

from klutchctl.main import globals_first, is_verbose

LINES = {
    "before the command": ("--qps 5 plan .", "--qps 5 plan ."),
    "after it": ("plan . --kubeconfig k -o json", "--kubeconfig k plan . -o json"),
    "a network": ("plan . --deny-networks 10.0.0.0/8", "--deny-networks 10.0.0.0/8 plan ."),
    "a short one": ("plan -l env=prod .", "-l env=prod plan ."),
    "a short one with its value": ("plan -lenv=prod .", "-lenv=prod plan ."),
    "one that is repeated": ("plan --cluster a . --cluster=b", "--cluster a --cluster=b plan ."),
    "with an equals sign": ("plan --timeout=5 x", "--timeout=5 plan x"),
    "a flag takes no value": ("plan --no-color x", "--no-color plan x"),
    "what follows -- is not an option": ("plan -- --qps 5", "plan -- --qps 5"),
    "a value that is missing is for the parser to refuse": ("plan --qps", "--qps plan"),
}


@pytest.mark.parametrize(("given", "parsed"), LINES.values(), ids=LINES.keys())
def test_order(given, parsed):
    assert globals_first(given.split()) == parsed.split()


VERBOSE = {
    "before the command": ("-v plan", True),
    "after a global option with a value": ("--timeout 5 -v plan", True),
    "after a network": ("--deny-networks 10.0.0.0/8 -v plan", True),
    "an option of the command itself": ("version -v", False),
    "not at all": ("plan .", False),
}


@pytest.mark.parametrize(("given", "verbose"), VERBOSE.values(), ids=VERBOSE.keys())
def test_verbose(given, verbose):
    assert is_verbose(given.split()) is verbose
