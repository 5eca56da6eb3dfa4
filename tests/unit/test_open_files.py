"""The limit of open files, tried in processes of their own."""

import resource
import subprocess
import sys

import pytest

_ASK = (
    "import resource; from reconciler.kube import open_files; open_files.allow_many(8192); "
    "print(*resource.getrlimit(resource.RLIMIT_NOFILE))"
)

CASES = {
    "a shell's limit is raised as far as it may be": ((256, 2048), (2048, 2048)),
    "and not without end": ((256, 10_000), (8192, 10_000)),
    "what is more already stays": ((9_000, 10_000), (9_000, 10_000)),
    "what cannot be raised stays": ((512, 512), (512, 512)),
}


@pytest.mark.parametrize(("given", "expected"), CASES.values(), ids=CASES.keys())
def test_how_many_files_may_be_open(given, expected):
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if most != resource.RLIM_INFINITY and most < given[1]:
        pytest.skip(f"this machine allows no more than {most}")
    limit = f"import resource; resource.setrlimit(resource.RLIMIT_NOFILE, {given})"
    answer = subprocess.run(
        [sys.executable, "-c", f"{limit}; {_ASK}"], check=True, capture_output=True, text=True
    )
    assert tuple(map(int, answer.stdout.split())) == expected
