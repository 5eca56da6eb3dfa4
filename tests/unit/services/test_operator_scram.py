"""Which password a role has, from what PostgreSQL keeps of it."""

import pytest

from postgresql_server.scram import fits
from reconciler.core.secret import Secret
from tests.unit.services.objects import verifier_of

# The salt, rounds and password of the exchange in RFC 7677, 3; StoredKey by its formulas.
RFC_7677 = (
    "SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$"
    "WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU="
)
CASES = {
    "the password of the RFC": (RFC_7677, "pencil", True),
    "another": (RFC_7677, "pencils", False),
    "a beginning": (RFC_7677, "penci", False),
    "none": (RFC_7677, "", False),
    "one of ours": (verifier_of("a-b_c", rounds=1000), "a-b_c", True),
    "beyond ASCII, which would need preparation": (verifier_of("ä"), "ä", False),
    "no password at all": ("", "", False),
    "an MD5 hash": ("md5a3556571e93b0d20722ba62be61e8c2d", "pencil", False),
    "what is cut off": (RFC_7677[:40], "pencil", False),
    "rounds that take minutes": (RFC_7677.replace("4096", "999999999"), "pencil", False),
    "no rounds": (RFC_7677.replace("4096", "0"), "pencil", False),
    "what is no base64": ("SCRAM-SHA-256$4096:!$!:!", "pencil", False),
}


@pytest.mark.parametrize(("verifier", "password", "want"), CASES.values(), ids=CASES.keys())
def test_fits(verifier, password, want):
    assert fits(verifier, Secret(password)) is want
