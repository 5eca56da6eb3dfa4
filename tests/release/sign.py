"""`python -m tests.release.sign`: sign what a release states of its files.

It reads digests alone, so that a key is nowhere near the programs that build.
"""

import argparse
import json
import os
import sys
from collections.abc import MutableMapping, Sequence
from pathlib import Path
from typing import Final

from tests.release import evidence

KEY: Final = "RELEASE_KEY"


def main(arguments: Sequence[str], environ: MutableMapping[str, str]) -> int:
    """Sign, and return the exit code. Errors go to stderr."""
    said, text = parser().parse_args(arguments), environ.pop(KEY, "")
    try:
        pem = text.encode() if said.key is None else said.key.read_bytes()
        if not pem:
            print("Not signed: no key was given.")
            return 0
        print(f"Signed by {signed(said.folder, evidence.load(pem))}.")
    except (evidence.KeyRefused, OSError, ValueError) as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    return 0


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="make sign", description=__doc__)
    made.add_argument("folder", type=Path, nargs="?", default=Path("dist"))
    help_ = f"a private key of ECDSA P-256 in PEM; or its text in ${KEY}; without: no signatures"
    made.add_argument("--key", type=Path, default=None, metavar="FILE", help=help_)
    return made


def signed(folder: Path, key: evidence.PrivateKey) -> str:
    """Write the signatures of checksums and provenance; return the key's id.

    Raises OSError, and ValueError where the provenance is not the one that has a checksum.
    """
    sums, provenance = folder / evidence.SUMS, folder / evidence.PROVENANCE
    text, stated = sums.read_bytes(), json.loads(provenance.read_text("utf-8"))
    line = evidence.sums({provenance.name: evidence.digest(provenance)})
    if line.encode() not in text.splitlines(keepends=True):
        raise ValueError(f"{provenance} is not the one that {sums} names: build the release again")
    made = evidence.sign(key, text), evidence.envelope(key, stated).encode()
    for name, content in zip(evidence.SIGNATURES, made, strict=True):
        (folder / name).write_bytes(content)
    return evidence.key_id(key)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
