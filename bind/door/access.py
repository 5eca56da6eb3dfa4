"""Parses the access file: further issuers, and the rules of `--authorization=Rules`. Pure.

    apiVersion: bind.klutchctl.dev/v1alpha1
    kind: Access
    issuers:
      - alias: ci
        url: https://token.actions.githubusercontent.com
        audiences: [https://bind.example.org]
        require: {repository_owner: [example]}
    allow:
      - {issuers: [ci], subjects: ["repo:example/shop:*"], templates: [shop/databases]}

Read by hand: pydantic would cost each backend 7 MiB.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from bind.door.catalogue import Offer
from bind.door.identity import Identity, Naming
from reconciler.core import yaml_text
from reconciler.core.errors import ConfigError
from reconciler.core.yaml_text import Fields
from reconciler.oidc.provider import ALGORITHMS, is_secure

API_VERSION: Final = "bind.klutchctl.dev/v1alpha1"
KIND: Final = "Access"
_DOCUMENT: Final = frozenset({"apiVersion", "kind", "issuers", "allow"})
_ISSUER: Final = frozenset(
    {
        "alias",
        "url",
        "audiences",
        "algorithms",
        "jwksFile",
        "caFile",
        "username",
        "groups",
        "require",
    }
)
_NAMING: Final = frozenset({"claim", "prefix"})
_RULE: Final = frozenset({"issuers", "subjects", "groups", "claims", "templates"})
# In the annotation of a space: after an issuer, and before the id of an app cluster.
_SEPARATORS: Final = "|#"


@dataclass(frozen=True, slots=True)
class TrustedIssuer:
    """An issuer with accepted tokens, for one of `audiences` and with the claims of `require`.

    `algorithms` is () for all that prove anything. With `jwks_file`, nothing is fetched from it.
    """

    alias: str
    url: str
    audiences: tuple[str, ...]
    algorithms: tuple[str, ...] = ()
    jwks_file: str = ""
    ca_file: str = ""
    naming: Naming = field(default_factory=Naming)
    require: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Rule:
    """Allows to bind where all its conditions hold; (), {} are no conditions.

    `issuers` are their URLs. `subjects` may end in `*`. `groups` are written as authorisation knows
    them, with their prefix. `templates` are `namespace/name`.
    """

    issuers: tuple[str, ...] = ()
    subjects: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    claims: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    templates: tuple[str, ...] = ()

    def allows(self, identity: Identity, offer: Offer) -> bool:
        own = {name: {*values} for name, values in identity.claims}
        return (
            (not self.issuers or identity.issuer in self.issuers)
            and (not self.subjects or any(_fits(identity.subject, one) for one in self.subjects))
            and (not self.groups or not set(self.groups).isdisjoint(identity.groups))
            and (not self.templates or f"{offer.namespace}/{offer.name}" in self.templates)
            and all(not own.get(name, set()).isdisjoint(one) for name, one in self.claims.items())
        )


@dataclass(frozen=True, slots=True)
class Access:
    """The content of the file."""

    issuers: tuple[TrustedIssuer, ...] = ()
    rules: tuple[Rule, ...] = ()

    @property
    def claims(self) -> frozenset[str]:
        """The claims that an identity has to keep for the rules."""
        return frozenset(name for rule in self.rules for name in rule.claims)

    def allows(self, identity: Identity, offer: Offer) -> bool:
        """Return whether any rule lets an identity bind an offer."""
        return any(rule.allows(identity, offer) for rule in self.rules)


NO_ACCESS: Final = Access()


def _fits(subject: str, pattern: str) -> bool:
    if pattern.endswith("*"):
        return subject.startswith(pattern.removesuffix("*"))
    return subject == pattern


def parse(content: bytes, path: str) -> Access:
    """Parse an access file; its own paths begin at its folder.

    Raises ConfigError with file, line and column.
    """
    document = yaml_text.read(content, path)
    for key, expected in (("apiVersion", API_VERSION), ("kind", KIND)):
        if document.text(key) != expected:
            raise document.error(f"{key} is not {expected}", at=key)
    _only(document, _DOCUMENT)
    folder, _, _ = path.rpartition("/")
    issuers = tuple(_issuer(one, folder) for one in document.sections("issuers"))
    _once(document, issuers)
    known = {one.alias: one.url for one in issuers}
    return Access(issuers, tuple(_rule(one, known) for one in document.sections("allow")))


def _issuer(section: Fields, folder: str) -> TrustedIssuer:
    _only(section, _ISSUER)
    url = _needed(section, "url")
    if not is_secure(url) or any(one in url for one in _SEPARATORS):
        raise section.error("url is not the https URL of an issuer", at="url")
    audiences = section.texts("audiences")
    if not all(audiences) or not audiences:
        raise section.error("audiences is empty: name the audiences of its tokens", at="audiences")
    algorithms = section.texts("algorithms")
    unknown = [one for one in algorithms if one not in ALGORITHMS]
    if unknown:
        known = ", ".join(ALGORITHMS)
        raise section.error(f"{unknown[0]} is none of {known}", at="algorithms")
    return TrustedIssuer(
        _needed(section, "alias"),
        url,
        audiences,
        algorithms,
        jwks_file=_file(section, "jwksFile", folder),
        ca_file=_file(section, "caFile", folder),
        naming=_naming(section),
        require=_values(section, "require"),
    )


def _naming(section: Fields) -> Naming:
    """Return how an issuer's users and groups are called.

    Without prefixes of its own it could call its users like those of another issuer, so the
    default is its URL.
    """
    url = section.text("url")
    user, groups = _named(section, "username"), _named(section, "groups")
    return Naming(
        user_claim=user.get("claim") or "sub",
        user_prefix=user.get("prefix", f"{url}#"),
        groups_claim=groups.get("claim") or "groups",
        groups_prefix=groups.get("prefix", f"{url}#"),
    )


def _named(section: Fields, key: str) -> dict[str, str]:
    inner = section.section(key)
    if inner is None:
        return {}
    _only(inner, _NAMING)
    return {name: inner.text(name) for name in inner.nodes}


def _rule(section: Fields, known: Mapping[str, str]) -> Rule:
    _only(section, _RULE)
    rule = Rule(
        _issuers(section, known),
        section.texts("subjects"),
        section.texts("groups"),
        _values(section, "claims"),
        section.texts("templates"),
    )
    for key in section.nodes:
        _filled(section, key)
    if not section.nodes:
        raise section.error("an empty rule would allow everything to everybody")
    loose = "subjects" if rule.subjects else "claims" if rule.claims else ""
    if known and loose and not rule.issuers:
        raise section.error(
            f"{loose} of any issuer would do: each chooses its own",
            at=loose,
            hint=f"Add issuers, such as [{next(iter(known))}], or [URL] for the first provider",
        )
    for template in rule.templates:
        namespace, separator, name = template.partition("/")
        if not (namespace and separator and name) or "/" in name:
            raise section.error(f"{template!r} is not NAMESPACE/NAME", at="templates")
    for subject in rule.subjects:
        if "*" in subject.removesuffix("*"):
            raise section.error(f"{subject!r} has a * that is not its end", at="subjects")
    return rule


def _issuers(section: Fields, known: Mapping[str, str]) -> tuple[str, ...]:
    """Return the URLs of issuers that a rule names, by alias or, such as the first, by URL."""
    found = []
    for one in section.texts("issuers"):
        if one not in known and "://" not in one:
            raise section.error(f"{one!r} is no alias of an issuer, nor a URL", at="issuers")
        found.append(known.get(one, one))
    return tuple(found)


def _filled(section: Fields, key: str) -> None:
    """Refuse an empty field: it would be taken for one that is not asked."""
    if not section.nodes[key].plain():
        raise section.error(f"{key} is empty: give it a value, or leave it out", at=key)


def _values(section: Fields, key: str) -> dict[str, tuple[str, ...]]:
    inner = section.section(key)
    if inner is None:
        return {}
    values = {name: inner.texts(name) for name in inner.nodes}
    for name, listed in values.items():
        if not listed:
            raise inner.error(f"{key} names no value of {name}", at=name)
    return values


def _needed(section: Fields, key: str) -> str:
    if not section.has(key):
        raise section.error(f"{key} is missing", at=key)
    return section.text(key)


def _file(section: Fields, key: str, folder: str) -> str:
    path = section.text(key)
    return f"{folder}/{path}" if path and folder and not path.startswith("/") else path


def _only(section: Fields, known: Collection[str]) -> None:
    for key in section.nodes:
        if key not in known:
            where = str(section.key_origins.get(key, section.origin))
            raise ConfigError(f"{key} is none of {', '.join(sorted(known))}", where=where)


def _once(document: Fields, issuers: Sequence[TrustedIssuer]) -> None:
    for key, values in (
        ("alias", [one.alias for one in issuers]),
        ("url", [one.url for one in issuers]),
    ):
        twice = next((one for one in values if values.count(one) > 1), "")
        if twice:
            raise document.error(f"the {key} {twice} is there twice", at="issuers")
