"""What a provider grants: codes, device codes, and tokens for them. Each is good once."""

import base64
import hashlib
import secrets
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from tests.support.issuer_clients import Client, Refusal
from tests.support.issuer_tokens import payload

if TYPE_CHECKING:
    from tests.support.issuer import FakeProvider, User

CODE: Final = "authorization_code"
CREDENTIALS: Final = "client_credentials"
DEVICE: Final = "urn:ietf:params:oauth:grant-type:device_code"
EXCHANGE: Final = "urn:ietf:params:oauth:grant-type:token-exchange"
GRANT_TYPES: Final = (CODE, CREDENTIALS, DEVICE, EXCHANGE)

Form: TypeAlias = Mapping[str, str]
Answer: TypeAlias = dict[str, Any]


class Grants:
    """The codes of one provider that are not used yet."""

    def __init__(self, provider: "FakeProvider") -> None:
        self._provider = provider
        self._codes: dict[str, tuple[Client, User, Form]] = {}
        self._devices: dict[str, tuple[Client, Form]] = {}

    def authorized(self, client: Client, query: Form) -> Answer:
        """Return what the redirect says: a code, or why there is none."""
        user = self._provider.user
        if query.get("response_type") != "code" or "openid" not in query.get("scope", "").split():
            return {"error": "invalid_request"}
        if "code_challenge" in query and query.get("code_challenge_method") != "S256":
            return {"error": "invalid_request"}
        if client.is_public and "code_challenge" not in query:
            return {"error": "invalid_request"}
        if user is None:
            return {"error": "access_denied"}
        code = secrets.token_urlsafe(24)
        self._codes[code] = client, user, query
        return {"code": code}

    def device(self, client: Client, form: Form, page: str) -> Answer:
        code, user_code = secrets.token_urlsafe(24), "BCDF-GHJK"
        self._devices[code] = client, form
        return {
            "device_code": code,
            "user_code": user_code,
            "verification_uri": page,
            "verification_uri_complete": f"{page}?user_code={user_code}",
            "expires_in": 600,
            "interval": self._provider.interval,
        }

    def granted(self, client: Client, form: Form) -> Answer:
        """Return tokens. Raises Refusal."""
        grants: Mapping[str, Callable[[Client, Form], Answer]] = {
            CODE: self._by_code,
            CREDENTIALS: self._for_itself,
            DEVICE: self._by_device_code,
            EXCHANGE: self._exchanged,
        }
        if form.get("grant_type") not in grants:
            raise Refusal("unsupported_grant_type", "another grant")
        return grants[form["grant_type"]](client, form)

    def _by_code(self, client: Client, form: Form) -> Answer:
        owner, user, query = self._codes.pop(form.get("code", ""), (None, None, {}))
        if user is None or owner != client:
            raise Refusal("invalid_grant", "the code is unknown, used or another client's")
        if form.get("redirect_uri") != query["redirect_uri"]:
            raise Refusal("invalid_grant", "another redirect_uri")
        _prove(query, form)
        return self._for_user(client, user, query.get("nonce"))

    def _by_device_code(self, client: Client, form: Form) -> Answer:
        code = form.get("device_code", "")
        owner, asked = self._devices.get(code, (None, {}))
        if owner != client:
            raise Refusal("invalid_grant", "the device code is unknown, used or another client's")
        _prove(asked, form)
        if self._provider.waits:
            raise Refusal(self._provider.waits.popleft(), "not yet")
        del self._devices[code]
        if self._provider.user is None:
            raise Refusal("access_denied", "the user said no")
        return self._for_user(client, self._provider.user, None)

    def _for_user(self, client: Client, user: "User", nonce: str | None) -> Answer:
        provider = self._provider
        access = provider.issued_access_token(user.subject, client_id=client.id, **user.claims)
        claims = {**user.claims, "aud": client.id, "nonce": nonce}
        return {
            "access_token": access,
            "token_type": "Bearer",
            "expires_in": 300,
            "id_token": provider.issued_id_token(user.subject, access, **claims),
        }

    def _for_itself(self, client: Client, form: Form) -> Answer:
        if client.is_public:
            raise Refusal("unauthorized_client", "a public client has nothing of its own")
        return self._for_audience(client.id, client, form)

    def _exchanged(self, client: Client, form: Form) -> Answer:
        """Exchange a token, whoever signed it: RFC 8693 2.1."""
        if not form.get("subject_token") or not form.get("subject_token_type"):
            raise Refusal("invalid_request", "no subject_token, or no type of it")
        subject = str(payload(form["subject_token"])["sub"])
        kind = "urn:ietf:params:oauth:token-type:access_token"
        return {**self._for_audience(subject, client, form), "issued_token_type": kind}

    def _for_audience(self, subject: str, client: Client, form: Form) -> Answer:
        audience = form.get("audience") or self._provider.audience
        claims = {**client.claims, "client_id": client.id, "aud": audience}
        token = self._provider.issued_access_token(subject, **claims)
        return {"access_token": token, "token_type": "Bearer", "expires_in": 300}


def _prove(asked: Form, form: Form) -> None:
    """Hold a verifier against the challenge: RFC 7636 4.6. Raises Refusal."""
    digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
    computed = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
    if "code_challenge" in asked and computed != asked["code_challenge"]:
        raise Refusal("invalid_grant", "the verifier does not fit")
    if "code_challenge" not in asked and "code_verifier" in form:
        raise Refusal("invalid_grant", "a verifier without a challenge")
