"""Makes root file systems of Debian packages: one to build in, and small ones to build images on.

The small ones are chosen packages of the first, with what those need and without what only
maintainer scripts do: no shell and no package manager for the agents.
"""

import hashlib
import io
import re
import shutil
import subprocess
import tarfile
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple

SUITE: Final = "trixie"
EPOCH: Final = 315532800  # of all files, in seconds: 1980, before which no wheel can be
USER: Final = 65532

_PYTHON: Final = ("ca-certificates", "libpython3.13-stdlib", "netbase", "python3-minimal", "tzdata")
_SCRIPTS: Final = (
    *("bash", "coreutils", "dash", "diffutils", "findutils", "git", "grep", "gzip", "mawk"),
    *("python-is-python3", "sed", "tar"),
)
# By the name of the file system: the packages that are asked for.
CHOSEN: Final[Mapping[str, Collection[str]]] = {
    "agent": ("base-files", *_PYTHON),
    "pipeline": ("base-files", *_PYTHON, *_SCRIPTS),
}
# Maintainer scripts need these, and commands of Git and OpenSSL that no script of ours calls;
# unless they are chosen.
_LEFT_OUT: Final = frozenset(
    {"debconf", "dpkg", "git-man", "liberror-perl", "mawk", "openssl", "perl", "perl-base"}
)
# Files of packages, as dpkg takes patterns; notes of copyright stay.
_UNUSED: Final = (
    *("/usr/share/doc/*", "/usr/share/locale/*", "/usr/share/man/*", "/usr/lib/*/gconv/*"),
    *("/usr/bin/git-shell", "/usr/bin/scalar", "/usr/lib/git-core/git-daemon"),
    *("/usr/lib/git-core/git-http-backend", "/usr/lib/git-core/git-http-push"),
    *("/usr/lib/git-core/git-imap-send", "/usr/lib/git-core/git-shell"),
    "/usr/lib/git-core/scalar",
)
# What maintainer scripts made, in no package.
_MADE: Final = (
    *("bin", "lib", "lib64", "sbin", "dev", "proc", "run", "sys", "tmp", "var/tmp"),
    *(
        "etc/nsswitch.conf",
        "etc/ssl/certs",
        "etc/ssl/certs/ca-certificates.crt",
        "etc/ssl/openssl.cnf",
    ),
    *("usr/lib/ssl", "usr/lib/ssl/cert.pem", "usr/lib/ssl/certs", "usr/lib/ssl/openssl.cnf"),
)
_AWK: Final = ("etc/alternatives/awk", "usr/bin/awk")  # of mawk
_MERGED: Final = frozenset({"bin", "lib", "lib64", "sbin"})  # links into /usr
_ACCOUNTS: Final = {
    "etc/passwd": f"root:x:0:0::/root:/bin/sh\nnonroot:x:{USER}:{USER}::/:/sbin/nologin\n",
    "etc/group": f"root:x:0:\nnonroot:x:{USER}:\n",
}
_UNUSED_MODULES: Final = re.compile(r"usr/lib/python3[\d.]*/(pydoc_data|test)/.*")
_STATUS: Final = "var/lib/dpkg/status"
_COMPILE: Final = (
    'chroot "$1" python3 -m compileall -q -f --invalidation-mode unchecked-hash /usr/lib/python3.13'
)


class Package(NamedTuple):
    """A package that is installed: its stanza in dpkg's status, and the names that it needs."""

    stanza: str
    needs: tuple[tuple[str, ...], ...]  # each with its alternatives


def bootstrap(target: Path, mirror: str) -> None:
    """Write the file system to build in, a tar. Raises CalledProcessError, with mmdebstrap's text.

    Bytecode bears the hash of its source and no time, so that it holds whatever times files get.
    """
    packages = sorted({*_PYTHON, *_SCRIPTS, "python3", "python3-venv"})
    options = [
        *("--variant=minbase", f"--include={','.join(packages)}", "--format=tar"),
        '--aptopt=Acquire::Languages "none"',
        *(f"--dpkgopt=path-exclude={one}" for one in _UNUSED),
        "--dpkgopt=path-include=/usr/share/doc/*/copyright",
        f"--customize-hook={_COMPILE}",
    ]
    sources = [f"deb {mirror} {SUITE} main", f"deb {mirror}-security {SUITE}-security main"]
    unfinished = target.with_suffix(".part")
    subprocess.run(
        ["mmdebstrap", *options, SUITE, str(unfinished), *sources],
        check=True,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    unfinished.rename(target)


def select(whole: Path, target: Path, chosen: Collection[str]) -> None:
    """Write the tar of some packages and of what they need, out of the tar of all."""
    with tarfile.open(whole) as source:
        members = {one.name.removeprefix("./").rstrip("/"): one for one in source.getmembers()}
        installed = packages(_text(source, members[_STATUS]))
        wanted = closure(installed, chosen)
        paths = {*_MADE, *_files(source, members, wanted), *(_AWK if "mawk" in wanted else ())}
        paths |= {str(parent) for path in paths for parent in PurePosixPath(path).parents}
        unfinished = target.with_suffix(".part")
        with tarfile.open(unfinished, "w", format=tarfile.PAX_FORMAT) as made:
            for path in sorted(paths & members.keys() - {_STATUS, *_ACCOUNTS}):
                _copy(source, members[path], made, path)
            status = "\n\n".join(installed[name].stanza for name in sorted(wanted)) + "\n"
            for path, text in {**_ACCOUNTS, _STATUS: status}.items():
                _add(made, path, text.encode())
    unfinished.rename(target)


def packages(status: str) -> dict[str, Package]:
    """Return the installed packages that dpkg's status lists, by name, and by what they provide."""
    found: dict[str, Package] = {}
    provided: dict[str, Package] = {}
    for stanza in filter(None, (one.strip() for one in status.split("\n\n"))):
        fields = dict(re.findall(r"^([\w-]+): (.*)$", stanza, re.MULTILINE))
        lines = [fields.get("Pre-Depends", ""), fields.get("Depends", "")]
        needs = tuple(
            tuple(re.findall(r"(?:^|\|)\s*([a-z0-9][a-z0-9.+-]*)", one))
            for one in ",".join(filter(None, lines)).split(",")
            if one
        )
        package = found[fields["Package"]] = Package(stanza, needs)
        for name in re.findall(r"(?:^|,)\s*([a-z0-9][a-z0-9.+-]*)", fields.get("Provides", "")):
            provided[name] = package
    return {**provided, **found}


def closure(installed: Mapping[str, Package], chosen: Collection[str]) -> set[str]:
    """Return the names of the chosen packages and of all that they need. Raises KeyError."""
    wanted, left = set[str](), [*chosen]
    while left:
        package = installed[left.pop()]
        name = package.stanza.split("\n", 1)[0].removeprefix("Package: ")
        if name in wanted or name in _LEFT_OUT - {*chosen}:
            continue
        wanted.add(name)
        left += [next(one for one in either if one in installed) for either in package.needs]
    return wanted


def _files(
    source: tarfile.TarFile, members: Mapping[str, tarfile.TarInfo], wanted: Collection[str]
) -> Iterator[str]:
    """Yield the paths of some packages, with the bytecode of their modules."""
    for path, member in members.items():
        match = re.fullmatch(r"var/lib/dpkg/info/([^:]+?)(:\w+)?\.list", path)
        if match is None or match[1] not in wanted:
            continue
        yield path
        for listed in _text(source, member).splitlines():
            place = listed.strip("/.")
            if place.partition("/")[0] in _MERGED and "/" in place:
                place = f"usr/{place}"
            if _UNUSED_MODULES.fullmatch(place):
                continue  # what the installation of Python still needed
            yield place
            if place.endswith(".py"):
                folder, _, module = place.rpartition("/")
                yield f"{folder}/__pycache__/{module.removesuffix('.py')}.cpython-313.pyc"


def _text(source: tarfile.TarFile, member: tarfile.TarInfo) -> str:
    file = source.extractfile(member)
    assert file is not None, member.name
    return file.read().decode()


def _copy(
    source: tarfile.TarFile, member: tarfile.TarInfo, made: tarfile.TarFile, path: str
) -> None:
    """Copy a member; a second name of a file becomes a file of its own."""
    entry = tarfile.TarInfo(path)
    entry.mode, entry.mtime = member.mode & ~0o6000, EPOCH  # no file gives another's rights
    file = None if member.issym() or member.isdir() else source.extractfile(member)
    if file is None:
        entry.type, entry.linkname = member.type, member.linkname
        made.addfile(entry)
    else:
        _add(made, path, file.read(), entry.mode)


def _add(made: tarfile.TarFile, path: str, data: bytes, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(path)
    entry.mode, entry.mtime, entry.size = mode, EPOCH, len(data)
    made.addfile(entry, io.BytesIO(data))


def version() -> str:
    """Return what names these file systems in a cache: others come of another text of this file."""
    return hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:16]


def missing(*, pull: bool = False) -> str:
    """Return what is missing here to build images, and what to do; "" for nothing.

    `pull`: they are built on an image of a registry.
    """
    wanted = ("buildah",) if pull else ("buildah", "mmdebstrap")
    absent = [one for one in wanted if shutil.which(one) is None]
    if not absent:
        return ""
    other = "" if pull or "buildah" in absent else ", or build with ARGS=--pull"
    return f"no {' and no '.join(absent)} on PATH: install it, as by `apt-get install`{other}"
