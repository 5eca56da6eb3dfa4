"""Derives the names of an offering's kinds, and all names that follow from them."""

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from reconciler.api.osb import BrokerSpec, service_label
from reconciler.blueprints.offering.catalogue import CatalogueFault
from reconciler.core import names
from reconciler.core.refs import Kind

VERSION: Final = "v1"
_WORD: Final = re.compile("[A-Za-z0-9]+")
_STEM: Final = re.compile("[A-Z][A-Za-z0-9]*")
_GROUP: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)+")
_TAKEN: Final = (".k8s.io", ".kubernetes.io")  # these take an approval


@dataclass(frozen=True, slots=True)
class Named:
    """An offering's kinds, by the broker that has it, their group and their stem."""

    broker: str
    group: str
    stem: str

    @property
    def instances(self) -> Kind:
        return self._kind("Instance")

    @property
    def bindings(self) -> Kind:
        return self._kind("Binding")

    @property
    def service(self) -> str:
        """The label of Secrets with credentials."""
        return service_label(self.broker, self.stem.lower())

    @property
    def template(self) -> str:
        return f"{self.broker}-{self.stem.lower()}"

    def _kind(self, suffix: str) -> Kind:
        kind = f"{self.stem}{suffix}"
        return Kind(self.group, VERSION, kind, f"{kind.lower()}s")


def stem_of(offering: str) -> str:
    """Return the words of an offering's name, capitalised and in one; "" where it has none."""
    plain = unicodedata.normalize("NFKD", offering).encode("ascii", "ignore").decode()
    words = "".join(word[0].upper() + word[1:] for word in _WORD.findall(plain))
    return f"S{words}" if words[:1].isdigit() else words


def check_broker(broker: BrokerSpec) -> None:
    """Raise CatalogueFault where names that follow from a ServiceBroker could not be used."""
    problems = []
    if problem := names.label_problem(broker.name):
        problems.append(f"the ServiceBroker's name: {problem}")
    if not _GROUP.fullmatch(broker.group) or len(broker.group) > 190:
        problems.append(f"group {broker.group!r} is none, such as services.acme.example")
    if f".{broker.group}".endswith(_TAKEN):
        problems.append(f"group {broker.group} is one of Kubernetes itself")
    if problems:
        raise CatalogueFault(problems)


def check(offered: Iterable[tuple[str, Named]]) -> None:
    """Raise CatalogueFault where names, each with its offering's, are too long or alike."""
    problems = []
    seen: dict[str, str] = {}
    for offering, named in offered:
        if not _STEM.fullmatch(named.stem):
            problems.append(f"offering {offering}: no kind follows from its name: say `kind`")
        elif problem := _too_long(named):
            problems.append(f"offering {offering}: {problem}: say a shorter `kind`")
        first = seen.setdefault(named.stem.lower(), offering)
        if first != offering:
            problems.append(f"offerings {first} and {offering} have one kind: say `kind`")
    if problems:
        raise CatalogueFault(problems)


def _too_long(named: Named) -> str:
    longest = f"{named.instances.kind}List".lower()
    if len(longest) > names.MAX_LABEL:
        return f"{longest} has more than {names.MAX_LABEL} characters"
    for text in (named.service, named.template):
        if len(text) > names.MAX_LABEL:
            return f"{text} has more than {names.MAX_LABEL} characters"
    return ""
