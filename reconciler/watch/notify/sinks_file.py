"""Parses the file of `--notify`: the sinks, and the files with their secrets.

apiVersion: notify.klutchctl.dev/v1alpha1
kind: Notify
sinks:
  - name: commits
    commitStatus: {provider: github, repository: acme/fleet, tokenFile: token}
  - name: chat
    slack: {urlFile: /etc/notify/slack-url}
    states: [failure]
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal, TypeAlias

from pydantic import AfterValidator, Field, StrictBool, StrictStr, ValidationError

from reconciler.core import yaml_text
from reconciler.core.errors import ConfigError, InvalidRepository, Problem
from reconciler.core.secret import Secret
from reconciler.core.yaml_text import UnreadableText, locate
from reconciler.files import read_secret
from reconciler.fleet import base_model
from reconciler.fleet.base_model import NAME, Form, Line, StrictModel
from reconciler.oidc.provider import is_secure
from reconciler.watch.notify.messages import Phase
from reconciler.web import standard_webhooks

_APIS: Final = {"github": "https://api.github.com", "gitlab": "https://gitlab.com/api/v4"}
_PART: Final = r"(?!\.{1,2}(/|$))[A-Za-z0-9._-]+"
_REPOSITORY: Final = Form(f"{_PART}(/{_PART})+", "a path such as acme/fleet", most=1024)


def _of_form(text: str, form: Form) -> str:
    """Check a text in which nothing is replaced, unlike in a fleet's files."""
    if problem := form.problem_of(text):
        raise base_model.refused(problem)
    return text


def _secure(url: str) -> str:
    if not is_secure(url) or "#" in url:
        raise base_model.refused("is no https URL, and none of this machine")
    return url


_Url: TypeAlias = Annotated[StrictStr, AfterValidator(_secure)]


class CommitStatus(StrictModel):
    """The status of commits at a Git host. `api` is needed for Gitea, and hosts of your own.

    `detail`: the page is for people who may read names of clusters and objects.
    """

    provider: Literal["github", "gitlab", "gitea"]
    repository: Annotated[StrictStr, AfterValidator(lambda path: _of_form(path, _REPOSITORY))]
    token_file: Line
    api: _Url = ""
    detail: StrictBool = False

    @property
    def base(self) -> str:
        """The URL of the API, without a slash at its end."""
        return (self.api or _APIS.get(self.provider, "")).rstrip("/")


class Slack(StrictModel):
    """An incoming webhook of Slack, or of a compatible server: its URL is a secret."""

    url_file: Line


class Webhook(StrictModel):
    """A webhook of ours, signed as https://www.standardwebhooks.com describes."""

    url: _Url
    secret_file: Line


class Receiver(StrictModel):
    """A receiver of messages, and the states that it is interested in."""

    name: Annotated[StrictStr, AfterValidator(lambda name: _of_form(name, NAME))]
    commit_status: CommitStatus | None = None
    slack: Slack | None = None
    webhook: Webhook | None = None
    states: list[Literal["pending", "success", "failure"]] = Field(
        default=["pending", "success", "failure"], min_length=1
    )
    ca_file: Line = ""


class Notify(StrictModel):
    """The document."""

    api_version: Literal["notify.klutchctl.dev/v1alpha1"]
    kind: Literal["Notify"]
    sinks: list[Receiver] = Field(min_length=1)


Target: TypeAlias = CommitStatus | Slack | Webhook


@dataclass(frozen=True, slots=True)
class Sink:
    """A receiver of messages. `secret_file` has a token, a key or a URL, as the target needs."""

    name: str
    target: Target
    secret_file: Path
    phases: frozenset[Phase]
    ca_file: Path | None = None

    def secret(self) -> Secret:
        """Return the secret as its file holds it now. Raises ConfigError."""
        return read_secret(self.secret_file, f"sink {self.name}")


def read(path: Path) -> tuple[Sink, ...]:
    """Return the sinks of a file. Paths in it begin at its folder.

    Raises ConfigError, with file, line and column, also for secrets that cannot be used.
    """
    try:
        with path.open("rb") as file:
            content = file.read(yaml_text.MAX_BYTES + 1)  # the reader refuses it for its size
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", where=str(path)) from None
    return parse(content, path)


def parse(content: bytes, path: Path) -> tuple[Sink, ...]:
    """Return the sinks that `content` describes. Raises ConfigError as `read` does."""
    try:
        node = yaml_text.read(content, str(path))
        document = Notify.model_validate(node.plain(), by_alias=True, by_name=False)
    except UnreadableText as error:
        problem = Problem(error.origin, error.code, error.message, error.hint)
        raise InvalidRepository([problem]) from None
    except ValidationError as error:
        raise InvalidRepository(base_model.problems_of(error, node, Notify)) from None
    problems: list[Problem] = []
    sinks: dict[str, Sink] = {}
    for index, receiver in enumerate(document.sinks):
        sink = _sink(receiver, path.parent)
        for key, message in _faults(receiver, sink, sinks):
            origin = locate(node, ("sinks", index, *key))[0]
            problems.append(Problem(origin, "bad-value", message))
        if sink is not None:
            sinks[sink.name] = sink
    if problems:
        raise InvalidRepository(problems)
    return tuple(sinks.values())


def _sink(receiver: Receiver, folder: Path) -> Sink | None:
    given = (receiver.commit_status, receiver.slack, receiver.webhook)
    targets = [one for one in given if one is not None]
    if len(targets) != 1:
        return None
    target = targets[0]
    ca_file = folder / receiver.ca_file if receiver.ca_file else None
    phases = frozenset(map(Phase, receiver.states))
    return Sink(receiver.name, target, folder / _secret_file(target), phases, ca_file)


def _secret_file(target: Target) -> str:
    match target:
        case CommitStatus():
            return target.token_file
        case Slack():
            return target.url_file
        case Webhook():
            return target.secret_file


def _faults(
    receiver: Receiver, sink: Sink | None, before: Collection[str]
) -> Iterator[tuple[tuple[str, ...], str]]:
    """Return the faults between parts that are each right: their places, and the sentences."""
    if receiver.name in before:
        yield ("name",), f"sink {receiver.name} is there twice"
    if sink is None:
        yield (), "a sink has one of commitStatus, slack and webhook"
        return
    if isinstance(sink.target, CommitStatus) and not sink.target.base:
        yield ("commitStatus",), "api is required: https://HOST/api/v1"
    try:
        fault = secret_fault(sink.target, sink.secret())
    except ConfigError as error:
        fault = error.message
    if fault:
        yield (), fault


def secret_fault(target: Target, secret: Secret) -> str:
    """Return the reason why a secret does not fit a target, or ""."""
    text = secret.reveal()
    match target:
        case CommitStatus():
            fits = text.isascii() and text.isprintable()
            return "" if fits else "the token contains characters that no token has"
        case Slack():
            return "" if is_secure(text) else "urlFile contains no https URL"
        case Webhook():
            try:
                fault = standard_webhooks.length_fault(standard_webhooks.key_of(secret))
            except ValueError as error:
                fault = f"contains no key: {error}"
            return f"secretFile {fault}" if fault else ""
