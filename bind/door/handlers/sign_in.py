"""Handles the sign-in of a browser at the provider."""

import base64
import logging
import os
import re
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Final
from urllib.parse import urlencode

from bind.door import sessions
from bind.door.audit import NOBODY, Subject
from bind.door.handlers import answers, services
from bind.door.handlers.services import Services, is_id, is_name
from bind.door.identity import Identity, Refused
from bind.door.sessions import Login, Session, Wish, login_id
from reconciler.core.errors import KlutchError
from reconciler.core.secret import Secret
from reconciler.oidc import grants, tokens
from reconciler.oidc.clients import Client
from reconciler.oidc.provider import GrantRefused, Provider, TokenRefused
from reconciler.web.requests import Cookie, Request, Response

log = logging.getLogger(__name__)

_SHORTEST_OURS: Final = 20  # of a session id with a challenge
_ERROR: Final = re.compile(r"[a-z_]{1,64}")
_LOGIN: Final = "klutch-login-"
_AT_ONCE: Final = 5  # sign-ins, and sessions, of one browser
# Characters of cookies: a header of more than 8 KiB is refused.
_MOST_OF_LOGINS: Final = 3_000
_MOST_OF_SESSIONS: Final = 4_000
_HOPPED: Final = "hop"


class SignIn:
    """Sends browsers to the provider, and takes them back."""

    def __init__(self, services: Services) -> None:
        self._services = services
        settings = services.settings
        self._client = Client(settings.client_id, secret=settings.client_secret)

    async def authorize(self, request: Request) -> Response:
        """Answer `/authorize`: begin the sign-in of a CLI's session. Raises Refused."""
        wish = wish_of(request.query, self._services.settings.allowed_redirects)
        return await self.begin(request, wish)

    async def begin(self, request: Request, wish: Wish) -> Response:
        """Return the way to the provider. Raises Refused."""
        # A cookie of another host than the callback's would not come back. Once: behind a proxy
        # that changes Host, they differ for ever.
        own = answers.origin(self._services.settings.callback)
        asked = f"{own.partition('//')[0]}//{request.headers.get('host', '')}"
        if answers.origin(asked) != own and _HOPPED not in request.query:
            query = urlencode({**request.query, _HOPPED: "1"})
            return answers.redirect(f"{own}{request.path}?{query}")
        try:
            provider = await (await self._services.issuers.first()).provider()
            login = self._login(wish)
            location = grants.authorization_url(
                provider,
                client_id=self._client.id,
                redirect_uri=self._services.settings.callback,
                scopes=self._services.settings.scopes,
                state=login.state,
                nonce=login.nonce,
                challenge=grants.challenge(Secret(login.verifier)),
            )
        except KlutchError as error:
            log.warning("the identity provider gives no usable answer", extra={"why": str(error)})
            sentence = "The identity provider is away. Try again in a moment"
            raise Refused("unavailable", sentence, reason="provider") from None
        keys = await self._services.ring.keys()
        cookie = self._cookie(login.state, login.sealed(keys), sessions.LOGIN.age)
        return answers.redirect(location, cookies=(*self._crowded_out(request, keys), cookie))

    async def callback(self, request: Request) -> Response:
        """Answer `/callback`: the browser comes back with a code."""
        state = request.query.get("state", "")
        try:
            session = await self._signed_in(request, state)
            answer = await self._welcome(request, session)
        except Refused as error:
            self._services.audit.note("sign-in", request, NOBODY, reason=error.reason)
            answer = answers.refused(
                request, error, self._services.frame, secure=self._services.secure
            )
        else:
            about = Subject(session.identity, session.wish.cid)
            self._services.audit.note("sign-in", request, about)
        return answers.with_cookies(answer, self._spent(request, state))

    async def _signed_in(self, request: Request, state: str) -> Session:
        """Return the session that the browser has now. Raises Refused."""
        login = await self._began(request, state)
        query = request.query
        if query.get("error"):
            error = query["error"] if _ERROR.fullmatch(query["error"]) else "an error"
            raise Refused(
                "invalid_request", f"The provider refused the sign-in: {error}", reason="provider"
            )
        if not query.get("code"):
            raise Refused("invalid_request", "There is no code in it", reason="code")
        now = self._services.now()
        try:
            provider = await (await self._services.issuers.first()).provider()
            problem = grants.callback_problem(provider, iss=query.get("iss", ""))
            if problem:
                raise Refused("invalid_request", problem, reason="iss")
            identity = await self._identity(provider, login, Secret(query["code"]), now)
        except TokenRefused as error:
            raise Refused("invalid_token", str(error), reason=error.reason) from None
        except GrantRefused as error:
            raise _refused_grant(error) from None
        except Refused:
            raise
        except KlutchError as error:
            log.warning("the identity provider gives no usable answer", extra={"why": str(error)})
            sentence = "The identity provider gave no usable answer. Sign in again"
            raise Refused("bad_gateway", sentence, reason="provider") from None
        return Session(identity, login.wish, now)

    async def _began(self, request: Request, state: str) -> Login:
        """Return the sign-in that this browser began. Raises Refused."""
        text = request.cookies.get(self._cookie_name(state), "")
        login = None
        if state and text:
            login = await self._services.ring.opened(
                lambda keys: Login.opened(keys, text, self._services.now())
            )
        if login is None or login.state != state:
            sentence = "This browser began no such sign-in, or too long ago"
            raise Refused("invalid_request", sentence, reason="state")
        if not self._services.states.take(state, self._services.now()):
            raise Refused("invalid_request", "This sign-in was used already", reason="replay")
        return login

    async def _identity(
        self, provider: Provider, login: Login, code: Secret, now: float
    ) -> Identity:
        """Return the identity of a code. Raises KlutchErrors."""
        form = grants.code_form(
            provider,
            self._client,
            code=code,
            redirect_uri=self._services.settings.callback,
            verifier=Secret(login.verifier),
            now=now,
            jti=os.urandom(16),
        )
        answer = await self._services.http.send(form)
        given = grants.tokens_of(answer.status, answer.body)
        id_token = given.required_id_token()
        check = tokens.IdTokenCheck(
            provider.issuer, self._client.id, login.nonce, provider.algorithms, given.access_token
        )
        return await self._services.issuers.signed_in(
            lambda keys: tokens.id_token(id_token, keys, check, now=now)
        )

    async def _welcome(self, request: Request, session: Session) -> Response:
        """Return where a signed-in browser goes, with its cookie. Raises Refused."""
        keys, wish = await self._services.ring.keys(), session.wish
        if not wish.sid:
            cookie = self._services.ui_cookie(_fitting(session.sealed(keys, sessions.UI)))
            return answers.redirect("/ui/catalogue", cookies=(cookie,))
        cookie = self._services.session_cookie(
            wish.sid, _fitting(session.sealed(keys, sessions.SESSION))
        )
        crowded = self._crowded_sessions(request, keys, cookie)
        location = f"/resources?{urlencode({'s': wish.sid})}"
        if wish.challenge and wish.resource:
            chosen = {"s": wish.sid, "resource": wish.resource, "group": wish.group}
            location = f"/consent?{urlencode(chosen)}"
        return answers.redirect(location, cookies=(*crowded, cookie))

    def _login(self, wish: Wish) -> Login:
        state, nonce = (
            base64.urlsafe_b64encode(os.urandom(16)).decode().rstrip("=") for _ in range(2)
        )
        verifier = grants.verifier(os.urandom(32)).reveal()
        return Login(state, nonce, verifier, wish, self._services.now())

    def _cookie_name(self, state: str) -> str:
        return f"{self._prefix}{login_id(state)}"

    @property
    def _prefix(self) -> str:
        return f"__Host-{_LOGIN}" if self._services.secure else _LOGIN

    def _cookie(self, state: str, text: str, age: int) -> Cookie:
        return Cookie(self._cookie_name(state), text, age, self._services.secure)

    def _spent(self, request: Request, state: str) -> tuple[Cookie, ...]:
        """Return the deletion of a sign-in's cookie: it is good for one use."""
        if self._cookie_name(state) not in request.cookies:
            return ()
        return (self._cookie(state, "", 0),)

    def _crowded_out(self, request: Request, keys: sessions.Keys) -> tuple[Cookie, ...]:
        """Return the deletions of all sign-ins of a browser but the latest."""
        now = self._services.now()
        name = re.compile(f"{self._prefix}[0-9a-f]{{16}}")
        begun = {
            one: login.at if (login := Login.opened(keys, text, now)) else 0.0
            for one, text in request.cookies.items()
            if name.fullmatch(one)
        }
        return self._deleted(_surplus(begun, request.cookies, _MOST_OF_LOGINS))

    def _crowded_sessions(
        self, request: Request, keys: sessions.Keys, new: Cookie
    ) -> tuple[Cookie, ...]:
        """Return the deletions of a browser's oldest sessions, where it holds too many.

        Beyond 8 KiB of cookies, its requests would be refused until they are gone.
        """
        now = self._services.now()
        signed_in = {
            one: own.at if (own := Session.opened(keys, sessions.SESSION, text, now)) else 0.0
            for one, text in request.cookies.items()
            if services.is_session_cookie(one) and one != new.name
        }
        left = _MOST_OF_SESSIONS - len(new.value)
        return self._deleted(_surplus(signed_in, request.cookies, left))

    def _deleted(self, names: Sequence[str]) -> tuple[Cookie, ...]:
        return tuple(Cookie(name, "", 0, self._services.secure) for name in names)


def _surplus(begun: Mapping[str, float], cookies: Mapping[str, str], most: int) -> list[str]:
    """Return the names of the oldest cookies, so that five with the next one, and `most` stay."""
    latest = sorted(begun, key=lambda name: begun[name], reverse=True)
    sizes = accumulate(len(name) + len(cookies[name]) for name in latest)
    kept = sum(size <= most for size in sizes)
    return latest[min(kept, _AT_ONCE - 1) :]


def wish_of(query: Mapping[str, str], allowed: tuple[str, ...]) -> Wish:
    """Parse the request of a CLI (protocol-bind.md B.2, and our own). Raises Refused."""
    sid, cid = query.get("s", ""), query.get("c", "")
    if not sid or not cid or not (query.get("u") or query.get("p")):
        raise Refused("invalid_request", "missing redirect_url or session_id", reason="missing")
    if not is_id(sid) or not is_id(cid):
        sentence = "s and c are 1 to 64 letters, digits, - and _"
        raise Refused("invalid_request", sentence, reason="malformed")
    target = answers.target(url=query.get("u", ""), port=query.get("p", ""), allowed=allowed)
    resource, group = query.get("resource", ""), query.get("group", "")
    if not is_name(resource) or not is_name(group):
        raise Refused("invalid_request", "resource or group is malformed", reason="malformed")
    name = services.label_of(query.get("cluster_name", ""))
    return Wish(target, sid, cid, _challenge(query, sid), _dry_run(query), resource, group, name)


def _dry_run(query: Mapping[str, str]) -> bool:
    """Return whether nothing is to be made. Raises Refused for `true`, which means that, too."""
    text = query.get("dry_run", "")
    if text not in ("", "0", "1"):
        raise Refused("invalid_request", "dry_run is neither 0 nor 1", reason="malformed")
    return text == "1"


def _challenge(query: Mapping[str, str], sid: str) -> str:
    challenge = query.get("code_challenge", "")
    if not challenge:
        if query.get("code_challenge_method") or query.get("dry_run"):
            raise Refused("invalid_request", "code_challenge is missing", reason="challenge")
        return ""
    if query.get("code_challenge_method") != "S256" or not grants.is_challenge(challenge):
        sentence = "code_challenge is not one of method S256"
        raise Refused("invalid_request", sentence, reason="challenge")
    if len(sid) < _SHORTEST_OURS:
        sentence = f"s is shorter than {_SHORTEST_OURS} characters"
        raise Refused("invalid_request", sentence, reason="malformed")
    return challenge


def _refused_grant(error: GrantRefused) -> Refused:
    if error.error == "invalid_grant":
        sentence = "The provider does not know the code, or not any more. Sign in again"
        return Refused("invalid_request", sentence, reason="code")
    log.error("the identity provider refused a token request", extra={"error": error.error})
    sentence = "The provider refused this backend; the operator finds the reason in its log"
    return Refused("bad_gateway", sentence, reason="provider")


def _fitting(text: str) -> str:
    if len(text) > sessions.MOST:
        sentence = "The token names too many groups for a cookie; have them filtered"
        raise Refused("forbidden", sentence, reason="groups")
    return text
