"""`kubectl-bind`, for `kubectl bind`: Klutch's command, in one process (F18-F20).

Its flags, texts and exit codes are those of protocol-bind.md D. `klutchctl bind` has more exit
codes.
"""

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from klutchctl.entry import end_after, ending_quietly

if TYPE_CHECKING:
    from klutchctl.binding.job import Job
    from klutchctl.binding.progress import Progress
    from klutchctl.binding.run import Asked, Way


def main() -> None:
    """Run the command line and end the process."""
    with ending_quietly():
        from klutchctl.binding import job

        del job
    end_after(_code)


def _code(arguments: list[str]) -> int:
    try:
        return run(arguments)
    except SystemExit as ended:  # after --help, and it is yet to be written out
        return int(ended.code or 0)
    except KeyboardInterrupt:
        return 1


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code, 0 or 1. Errors go to stderr."""
    from klutchctl.entry import leaves, sentence
    from klutchctl.render.terminal import visible_lines

    try:
        return _run(list(arguments))
    except BrokenPipeError:
        raise
    except Exception as error:
        for leaf in leaves(error):
            print(f"Error: {visible_lines(sentence(leaf))}", file=sys.stderr)
        return 1


def _run(arguments: list[str]) -> int:
    from klutchctl.binding import kubectl_flags
    from klutchctl.binding.progress import Progress

    apiservice = arguments[:1] == ["apiservice"]
    rest = arguments[1:] if apiservice else arguments
    flags = kubectl_flags.parse(rest, apiservice=apiservice)
    if apiservice and len(flags.url) > 1:
        kubectl_flags.parse(["--help"], apiservice=True)
    if not apiservice and not flags.url:
        kubectl_flags.parse(["--help"], apiservice=False)
    return (_bind_apiservice if apiservice else _bind_url)(flags, Progress())


def _bind_url(flags: argparse.Namespace, progress: "Progress") -> int:
    import uvloop

    from klutchctl.binding.job import Flags, browser
    from reconciler.core.errors import ConfigError

    if not flags.url[0].startswith(("http://", "https://")):
        raise ConfigError(f"unknown argument: {flags.url[0]}", where="kubectl bind")
    way = Flags.of(vars(flags)).way(browser() if flags.open_browser else None)
    job = _job(flags, progress, way)
    print(uvloop.run(_printed(job, flags.output)), end="")
    return 0


async def _printed(job: "Job", output: str) -> str:
    from klutchctl.binding.job import printed

    text = await printed(job, output)
    if not job.asked.dry_run:
        print(file=sys.stderr)
    return text


def _bind_apiservice(flags: argparse.Namespace, progress: "Progress") -> int:
    import uvloop

    from klutchctl.binding.job import Source, bound
    from klutchctl.binding.run import Way

    source = Source(
        manifest=flags.file,
        url=flags.url[0] if flags.url else "",
        kubeconfig=flags.remote_kubeconfig,
        secret=(flags.remote_kubeconfig_namespace, flags.remote_kubeconfig_name),
        namespace=flags.remote_namespace,
    )
    source.require()
    job = _job(flags, progress, Way())
    text = uvloop.run(bound(job, source))
    print(file=sys.stderr)
    print(text, end="")
    return 0


def _job(flags: argparse.Namespace, progress: "Progress", way: "Way") -> "Job":
    from klutchctl.binding import kubectl_flags
    from klutchctl.binding.job import Job

    return Job(
        asked=_asked(flags, way),
        connection=kubectl_flags.connection(flags),
        progress=progress,
        claims=flags.claims,
        accept=flags.accept,
        ca_file=getattr(flags, "ca_file", None),
    )


def _asked(flags: argparse.Namespace, way: "Way") -> "Asked":
    from klutchctl.binding.konnector import usual_rights
    from klutchctl.binding.run import Asked, resource_of

    return Asked(
        url=flags.url[0] if flags.url else "",
        way=way,
        issuer=getattr(flags, "issuer", ""),
        resources=tuple(map(resource_of, getattr(flags, "resource", ()))),
        skip_konnector=flags.skip_konnector,
        konnector_image=flags.konnector_image,
        no_policy=flags.no_policy,
        rights=flags.konnector_rbac or usual_rights(flags.konnector_image),
        dry_run=getattr(flags, "dry_run", False),
        wait=flags.wait_timeout,
        ready=flags.wait,
    )
