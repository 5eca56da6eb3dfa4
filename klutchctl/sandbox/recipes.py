"""Reads the programs that klutchctl builds from the Go modules beside it."""

import hashlib
import platform
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from klutchctl.sandbox.servers import Program
from klutchctl.sandbox.state import Component

MODULE: Final = Path(__file__).parent / "controlplane"
_SERVICES_MODULES: Final = Path(__file__).parent / "crossplane"
# -w leaves debug information out of the programs: the compiler need not write any.
_NO_DEBUG: Final = ("-trimpath", "-gcflags=all=-dwarf=false")
_SOURCES: Final = frozenset({".go", ".mod", ".sum"})  # not what a build by hand leaves there
# By the lines of releases: the folder of our Go module, and the module that it builds.
CROSSPLANES: Final = {
    "1.20": ("v1", "github.com/crossplane/crossplane"),
    "2.4": ("v2", "github.com/crossplane/crossplane/v2"),
}


@dataclass(frozen=True, slots=True)
class Patch:
    """A change to a source file of a Go module: each `old` becomes `new`."""

    module: str
    file: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Recipe:
    """The way from one of our Go modules to executables.

    `subject`, `versions` and `otherwise` (another way to get the executables, or "") are for
    people. `packages` has the Go package of each executable, `crds` the folders of CRDs (Go
    module, folder in it) that go with them, and `go` the oldest usable toolchain. `id` names the
    result: it changes with the sources, the versions, the build flags and the machine type.
    """

    module: Path
    subject: str
    versions: str
    otherwise: str
    go: tuple[int, int]
    arguments: tuple[str, ...]
    packages: Mapping[str, str]
    id: str
    crds: tuple[tuple[str, str], ...] = ()
    patches: tuple[Patch, ...] = ()


# The Go modules of the newest Crossplane and of the provider have the versions of the control plane
# wherever both need a module: a package is compiled once for all of them. The provider is older
# than these versions of Kubernetes' and Crossplane's libraries.
_PROVIDER_ON_OUR_VERSIONS: Final = (
    (
        "pkg/kube/client/ssa/cache/extractor/gvk_parser.go",
        "sigs.k8s.io/structured-merge-diff/v4",
        "sigs.k8s.io/structured-merge-diff/v6",
    ),
    (
        "cmd/provider/main.go",
        "NewWebhookManagedBy(mgr).For(&objectv1alpha1cluster.Object{})",
        "NewWebhookManagedBy(mgr, &objectv1alpha1cluster.Object{})",
    ),
    *(
        (f"internal/controller/{scope}/object/{file}.go", old, new)
        for scope in ("cluster", "namespaced")
        for file, old, new in (
            (
                "informers",
                "func(r *kcache.Reflector,",
                "func(_ context.Context, _ *kcache.Reflector,",
            ),
            (
                "object",
                "connectionDetails(ctx, c.client,",
                "connectionDetails(ctx, c.client.Client,",
            ),
            ("syncer", "p.client.Apply(", "p.client.Applicator.Apply("),
        )
    ),
)
# These versions have no flags for it: they would listen on all interfaces, the provider also on
# a fixed port, so that one sandbox at a time could run it.
_CROSSPLANE_ON_LOOPBACK: Final = (
    ("cmd/crossplane/core/core.go", 'Sprintf(":%d"', 'Sprintf("127.0.0.1:%d"'),
)
_PROVIDER_ON_LOOPBACK: Final = (
    (
        "cmd/provider/main.go",
        "\t)\n\tkingpin.MustParse(app.Parse(",
        '\t\twebhookPort = app.Flag("webhook-port", "Of the webhooks").Default("9443").Int()'
        "\n\t)\n\tkingpin.MustParse(app.Parse(",
    ),
    (
        "cmd/provider/main.go",
        "CertDir: certDir,",
        'CertDir: certDir, Host: "127.0.0.1", Port: *webhookPort,',
    ),
)


@dataclass(frozen=True, slots=True)
class Release:
    """A published release. `kubernetes` and `etcd` are tags such as v1.36.3; `recipe` builds
    the programs of that name, of Kubernetes all but etcd.
    """

    kubernetes: str
    etcd: str
    recipe: Recipe


def of(module: Path = MODULE) -> Release:
    """Return the release of the control plane that the Go module in `module` builds."""
    return release(
        module,
        "the control plane",
        Program,
        ", or let --download fetch the official binaries, or name a folder with them in"
        " KUBEBUILDER_ASSETS",
    )


def release(module: Path, subject: str, programs: Iterable[str], otherwise: str = "") -> Release:
    """Return the release of these programs of Kubernetes, which our Go module builds."""
    requirements = (module / "go.mod").read_text()
    names = [*map(str, programs)]
    kubernetes = _version_of("k8s.io/kubernetes", requirements)
    has_etcd = Program.ETCD in names
    etcd = _version_of("go.etcd.io/etcd/server/v3", requirements) if has_etcd else ""
    arguments = build_arguments(kubernetes)
    recipe = Recipe(
        module=module,
        subject=subject,
        versions=f"Kubernetes {kubernetes}{f' and etcd {etcd}' if etcd else ''}",
        otherwise=otherwise,
        go=_toolchain(requirements),
        arguments=arguments,
        packages={name: f"./{name}" for name in names},
        id=f"{kubernetes}-{_digest(module, arguments)}",
    )
    return Release(kubernetes=kubernetes, etcd=etcd, recipe=recipe)


def of_crossplane(line: str) -> Recipe:
    """Return how Crossplane is built, of a line of releases such as 1.20."""
    folder, module = CROSSPLANES[line]
    patches = tuple(Patch(module, *one) for one in _CROSSPLANE_ON_LOOPBACK)
    package, crds = f"{module}/cmd/crossplane", (module, "cluster/crds")
    return _of_services(folder, Component.CROSSPLANE, package, crds, patches)


def of_provider() -> Recipe:
    module = "github.com/crossplane-contrib/provider-kubernetes"
    changes = (*_PROVIDER_ON_OUR_VERSIONS, *_PROVIDER_ON_LOOPBACK)
    patches = tuple(Patch(module, *one) for one in changes)
    package, crds = f"{module}/cmd/provider", (module, "package/crds")
    return _of_services("provider", Component.PROVIDER_KUBERNETES, package, crds, patches)


def _of_services(
    folder: str,
    component: Component,
    package: str,
    crds: tuple[str, str],
    patches: tuple[Patch, ...],
) -> Recipe:
    module = _SERVICES_MODULES / folder
    requirements = (module / "go.mod").read_text()
    version = _version_of(crds[0], requirements)
    stamps = (
        f"-X {crds[0]}/internal/version.version={version}",
        # No metrics where no flag says an address: it would be port 8080 for all the world.
        "-X sigs.k8s.io/controller-runtime/pkg/metrics/server.DefaultBindAddress=0",
    )
    arguments = (*_NO_DEBUG, f"-ldflags=-s -w {' '.join(stamps)}")
    return Recipe(
        module=module,
        subject=str(component),
        versions=f"{component} {version}",
        otherwise="",
        go=_toolchain(requirements),
        arguments=arguments,
        packages={str(component): package},
        crds=(crds,),
        patches=patches,
        id=f"{version}-{_digest(module, (*arguments, *map(str, patches)))}",
    )


def build_arguments(kubernetes: str) -> tuple[str, ...]:
    """Return the flags of `go build` that let servers report this version as official ones do."""
    major, minor, _ = kubernetes.removeprefix("v").split(".", 2)
    package = "k8s.io/component-base/version"
    stamps = (("gitVersion", kubernetes), ("gitMajor", major), ("gitMinor", minor))
    return (
        *_NO_DEBUG,
        "-ldflags=-s -w " + " ".join(f"-X {package}.{name}={value}" for name, value in stamps),
    )


def _digest(module: Path, arguments: Iterable[str]) -> str:
    machine = (platform.system(), platform.machine())
    digest = hashlib.sha256(" ".join((*machine, *arguments)).encode())
    for file in sorted(path for path in module.rglob("*") if path.suffix in _SOURCES):
        digest.update(f"\0{file.relative_to(module)}\0".encode())
        digest.update(file.read_bytes())
    return digest.hexdigest()[:8]


def _toolchain(requirements: str) -> tuple[int, int]:
    major, minor = _only(r"go (\d+\.\d+)(?:\.\d+)?", requirements).split(".")
    return int(major), int(minor)


def _version_of(module: str, requirements: str) -> str:
    return _only(rf"{re.escape(module)} (v\S+)(?: // indirect)?", requirements)


def _only(pattern: str, requirements: str) -> str:
    match = re.search(rf"^\s*(?:require )?{pattern}\s*$", requirements, re.MULTILINE)
    if match is None:
        raise AssertionError(f"go.mod has no line like {pattern}")
    return match.group(1)
