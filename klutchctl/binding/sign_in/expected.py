"""Which call of the callback server is the answer to a sign-in. Pure.

A front door of ours brings a code, an original backend the whole response; either may be refused.
"""

import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from klutchctl.binding import response
from klutchctl.binding.errors import BadAnswer
from klutchctl.binding.sign_in.callback import Foreign
from reconciler.core.manifest import JSON
from reconciler.core.secret import Secret

_NOT_OURS: Final = "This answer is for another session. Start again from the command line."
_LONGEST: Final = 64


@dataclass(frozen=True, slots=True)
class Code:
    """A code of our door, to be redeemed."""

    code: Secret


@dataclass(frozen=True, slots=True)
class Response:
    """The BindingResponse of an original backend."""

    document: Mapping[str, JSON]


@dataclass(frozen=True, slots=True)
class Refusal:
    """The person, or the provider, said no. `error` is the code of RFC 6749 4.1.2.1."""

    error: str


Answer: TypeAlias = Code | Response | Refusal


@dataclass(frozen=True, slots=True)
class Expected:
    """The answer that belongs to a session. `door`: who issues codes, None for an original."""

    session: str
    door: str | None

    def accept(self, query: Mapping[str, str]) -> Answer:
        """Return the answer in a call. Raises Foreign."""
        return self._response(query) if self.door is None else self._code(query)

    def _code(self, query: Mapping[str, str]) -> Code | Refusal:
        if not self._is_session(query.get("state", "")):
            raise Foreign(_NOT_OURS)
        # RFC 9207: an answer of another server must not be taken for ours.
        if query.get("iss", "") != self.door:
            raise Foreign("This answer is not from the provider that was asked.")
        if error := query.get("error", ""):
            return Refusal(error[:_LONGEST])
        code = query.get("code", "")
        if not code:
            raise Foreign("There is no code in this answer.")
        return Code(Secret(code))

    def _response(self, query: Mapping[str, str]) -> Response:
        try:
            document = response.document_of(query.get("response", ""))
            session = response.session_of(document)
        except BadAnswer:
            raise Foreign("This is no answer of a provider.") from None
        if not self._is_session(session):
            raise Foreign(_NOT_OURS)
        return Response(document)

    def _is_session(self, found: str) -> bool:
        return hmac.compare_digest(found.encode("utf-8", "replace"), self.session.encode())
