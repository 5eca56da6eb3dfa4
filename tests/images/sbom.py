"""Describes an image as CycloneDX: the packages of Debian and of Python whose files it has."""

import re
import uuid
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from email.parser import BytesHeaderParser
from typing import Final

from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import DisjunctiveLicense
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

from tests.images import base
from tests.images.archive import Image

_METADATA: Final = re.compile(r"/app/lib/python3\.\d+/site-packages/[^/]+\.dist-info/METADATA")
_STATUS: Final = "/var/lib/dpkg/status"


def tells(path: str) -> bool:
    """Return whether a file says which packages there are."""
    return path == _STATUS or _METADATA.fullmatch(path) is not None


def of(image: Image, name: str, files: Mapping[str, bytes]) -> str:
    """Return the document, as JSON: the same for the same image.

    `files` are those of the image, with the contents of those that `tells` names.
    """
    labels = image.config["config"]["Labels"]
    version = labels["org.opencontainers.image.version"]
    subject = Component(
        name=name,
        version=version,
        type=ComponentType.CONTAINER,
        bom_ref=name,
        purl=PackageURL("oci", None, name, image.digest),
        licenses=[DisjunctiveLicense(id=labels["org.opencontainers.image.licenses"])],
    )
    bom = Bom(components=[*_debian(files), *_python(files)])
    bom.serial_number = uuid.uuid5(uuid.NAMESPACE_URL, f"oci:{name}@{image.digest}")
    bom.metadata.component = subject
    bom.metadata.timestamp = datetime.fromtimestamp(base.EPOCH, UTC)
    bom.register_dependency(subject, bom.components)
    return JsonV1Dot6(bom).output_as_string(indent=1)


def _debian(files: Mapping[str, bytes]) -> Iterator[Component]:
    status = files.get(_STATUS, b"").decode()
    for stanza in filter(None, map(str.strip, status.split("\n\n"))):
        fields = dict(re.findall(r"^([\w-]+): (.*)$", stanza, re.MULTILINE))
        name, version = fields["Package"], fields["Version"]
        where = {"arch": fields["Architecture"], "distro": base.SUITE}
        yield _library(PackageURL("deb", "debian", name, version, where))


def _python(files: Mapping[str, bytes]) -> Iterator[Component]:
    parser = BytesHeaderParser()
    for path, text in files.items():
        if _METADATA.fullmatch(path):
            metadata = parser.parsebytes(text)
            name = re.sub(r"[-_.]+", "-", metadata["Name"]).lower()
            yield _library(PackageURL("pypi", None, name, metadata["Version"]))


def _library(purl: PackageURL) -> Component:
    return Component(
        name=purl.name,
        version=purl.version,
        type=ComponentType.LIBRARY,
        bom_ref=purl.to_string(),
        purl=purl,
    )
