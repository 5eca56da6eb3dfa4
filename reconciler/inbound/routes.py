"""Which handler answers a path and a method. Pure but for the handlers."""

from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias

from reconciler.inbound.messages import Request, RequestRefused, Response

Handler: TypeAlias = Callable[[Request], Awaitable[Response]]
Parts: TypeAlias = Mapping[str, str]
RouteHandler: TypeAlias = Callable[[Request, Parts], Awaitable[Response]]
# By pattern, such as `/ui/offers/{namespace}/{name}`, and by method. HEAD is a method of its own.
Routes: TypeAlias = Mapping[str, Mapping[str, RouteHandler]]

_NO_NAMES = frozenset({"", ".", ".."})


class Router:
    """Hands requests to the handlers of routes. A literal segment goes before a `{name}`.

    Raises ValueError where two patterns are for the same paths.
    """

    def __init__(self, routes: Routes) -> None:
        self._exact: dict[str, Mapping[str, RouteHandler]] = {}
        by_shape: dict[str, tuple[list[str], Mapping[str, RouteHandler]]] = {}
        for pattern, methods in routes.items():
            segments = pattern.split("/")
            shape = "/".join("{}" if _is_name(one) else one for one in segments)
            if shape in by_shape:
                raise ValueError(f"two routes are for the paths of {pattern}")
            by_shape[shape] = segments, methods
            if shape == pattern:
                self._exact[pattern] = methods
        # "{" comes after all letters, so literal segments come first.
        self._named = [by_shape[shape] for shape in sorted(by_shape) if shape not in self._exact]

    async def __call__(self, request: Request) -> Response:
        """Answer a request. Raises RequestRefused, also for unknown paths and methods."""
        methods, parts = self._found(request.path)
        handler = methods.get(request.method)
        if handler is None:
            allowed = (("Allow", ", ".join(sorted(methods))),)
            raise RequestRefused(405, f"{request.method} is not allowed here", headers=allowed)
        return await handler(request, parts)

    def _found(self, path: str) -> tuple[Mapping[str, RouteHandler], Parts]:
        if path in self._exact:
            return self._exact[path], {}
        segments = path.split("/")
        for pattern, methods in self._named:
            parts = _parts(pattern, segments)
            if parts is not None:
                return methods, parts
        raise RequestRefused(404, "there is nothing here")


def _is_name(segment: str) -> bool:
    return segment.startswith("{") and segment.endswith("}")


def _parts(pattern: list[str], segments: list[str]) -> Parts | None:
    """Return what the names in a pattern stand for, or None where the path is not like it."""
    if len(pattern) != len(segments):
        return None
    parts = {}
    for wanted, given in zip(pattern, segments, strict=True):
        if not _is_name(wanted):
            if wanted != given:
                return None
        elif given in _NO_NAMES:
            return None
        else:
            parts[wanted[1:-1]] = given
    return parts
