"""Bearer tokens: whose are believed, and what strangers learn of the issuers."""

import base64
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
from joserfc import jwt
from joserfc.jwk import ECKey

from bind.door.access import NO_ACCESS, Access, TrustedIssuer
from bind.door.identity import Identity, Naming, Refused
from bind.door.issuers import Issuers, token_of
from reconciler.core.secret import Secret

NOW: Final = 1_800_000_000.0
DOOR: Final = "https://bind.example.org"
KEY: Final = ECKey.generate_key("P-256", {"kid": "1", "alg": "ES256", "use": "sig"})
OTHER: Final = ECKey.generate_key("P-256", {"kid": "1", "alg": "ES256", "use": "sig"})
CI: Final = "https://ci.example.org"


def key_set(folder: Path, key: ECKey = KEY) -> str:
    file = folder / "keys.json"
    file.write_text(json.dumps({"keys": [key.as_dict(private=False)]}))
    return str(file)


def trusted(folder: Path, **more: Any) -> TrustedIssuer:
    naming = Naming(user_prefix="ci:", groups_prefix="ci:")
    return TrustedIssuer("ci", CI, (DOOR,), jwks_file=key_set(folder), naming=naming, **more)


def token(key: ECKey = KEY, **claims: object) -> Secret:
    said = {"iss": CI, "sub": "repo", "aud": DOOR, "iat": NOW, "exp": NOW + 600, **claims}
    kept = {name: value for name, value in said.items() if value is not None}
    return Secret(jwt.encode({"alg": "ES256", "kid": "1"}, kept, key, algorithms=["ES256"]))


async def asked(given: Secret, access: Callable[[], Access] = lambda: NO_ACCESS) -> Identity:
    first = TrustedIssuer("", "https://idp.example.org", (DOOR,))
    async with Issuers(first, access, now=lambda: NOW) as issuers:
        return await issuers.identity(given)


async def refusal(given: Secret, access: Callable[[], Access] = lambda: NO_ACCESS) -> Refused:
    with pytest.raises(Refused) as refused:
        await asked(given, access)
    return refused.value


async def test_a_listed_issuer_names_an_identity_of_its_own(tmp_path: Path) -> None:
    found = await asked(token(groups=["a"]), lambda: Access((trusted(tmp_path),)))
    assert found == Identity(CI, "repo", "ci:repo", ("ci:a",), first=False)


WRONG: Final[dict[str, tuple[dict[str, object], str]]] = {
    "another audience": ({"aud": "https://other.example"}, "audience"),
    "no audience": ({"aud": None}, "audience"),
    "no end": ({"exp": None}, "times"),
    "a long life": ({"exp": NOW + 90_000}, "life"),
    "the end": ({"iat": NOW - 700, "exp": NOW - 100}, "expired"),
    "no subject": ({"sub": None}, "subject"),
    "an issuer that nobody knows": ({"iss": "https://evil.example"}, "issuer"),
    "another key": ({"key": OTHER}, "signature"),
}


@pytest.mark.parametrize(("change", "reason"), WRONG.values(), ids=WRONG.keys())
async def test_a_token_that_proves_nothing_is_refused(
    tmp_path: Path, change: dict[str, Any], reason: str
) -> None:
    refused = await refusal(token(**change), lambda: Access((trusted(tmp_path),)))
    assert refused.code == "invalid_token"
    assert refused.reason == reason


@pytest.mark.parametrize(("owner", "good"), [("example", True), ("evil", False), (None, False)])
async def test_claims_that_are_required_have_one_of_the_values(
    tmp_path: Path, owner: str | None, good: bool
) -> None:
    listed = trusted(tmp_path, require={"owner": ("example", "example-2")})
    given = token(owner=owner)
    if good:
        assert (await asked(given, lambda: Access((listed,)))).subject == "repo"
    else:
        assert (await refusal(given, lambda: Access((listed,)))).code == "invalid_token"


async def test_an_issuer_that_is_listed_twice_is_believed_by_either_entry(tmp_path: Path) -> None:
    one = trusted(tmp_path, require={"owner": ("a",)})
    other = replace(one, alias="b", require={"owner": ("b",)})
    assert (await asked(token(owner="b"), lambda: Access((one, other)))).subject == "repo"


@pytest.mark.parametrize("content", [None, "garbage", "{}"])
async def test_strangers_learn_nothing_of_a_key_file_that_is_not_usable(
    tmp_path: Path, content: str | None
) -> None:
    listed, file = trusted(tmp_path), tmp_path / "keys.json"
    file.unlink()
    if content is not None:
        file.write_text(content)
    refused = await refusal(token(), lambda: Access((listed,)))
    assert "keys.json" not in str(refused)
    assert CI not in str(refused)


async def test_a_ca_that_is_not_there_is_the_trouble_of_that_issuer_alone(tmp_path: Path) -> None:
    listed = TrustedIssuer("ci", CI, (DOOR,), ca_file=str(tmp_path / "ca.pem"))
    refused = await refusal(token(), lambda: Access((listed,)))
    assert refused.code == "unavailable"
    assert "ca.pem" not in str(refused)


async def test_keys_in_a_file_are_exchanged_without_a_restart(tmp_path: Path) -> None:
    listed = trusted(tmp_path)
    first = TrustedIssuer("", "https://idp.example.org", (DOOR,))
    async with Issuers(first, lambda: Access((listed,)), now=lambda: NOW) as issuers:
        assert (await issuers.identity(token())).subject == "repo"
        key_set(tmp_path, OTHER)
        assert (await issuers.identity(token(OTHER))).subject == "repo"
        with pytest.raises(Refused):
            await issuers.identity(token())


def _unsigned() -> str:
    parts = ({"alg": "none"}, {"iss": CI, "sub": "a", "aud": DOOR, "exp": NOW + 60})
    texts = (
        base64.urlsafe_b64encode(json.dumps(one).encode()).decode().rstrip("=") for one in parts
    )
    return ".".join((*texts, ""))


@pytest.mark.parametrize("text", ["a", "a.b.c", "x" * 20_000, _unsigned()])
async def test_what_is_no_token_is_refused(tmp_path: Path, text: str) -> None:
    refused = await refusal(Secret(text), lambda: Access((trusted(tmp_path),)))
    assert refused.code == "invalid_token"
    assert text not in str(refused)


@pytest.mark.parametrize("header", ["Bearer abc", "bearer abc", "BEARER  abc "])
def test_a_bearer_token_is_read_from_its_header(header: str) -> None:
    assert token_of(header).reveal() == "abc"
