"""Which handler answers which path and method."""

import pytest

from reconciler.inbound.messages import Request, RequestRefused, Response
from reconciler.inbound.routes import Router


def named(name):
    async def handler(request, parts):
        return Response(200, f"{name} {dict(parts)}".encode())

    return handler


ROUTES = {
    "/": {"GET": named("home")},
    "/export": {"GET": named("export"), "HEAD": named("export")},
    "/consent": {"GET": named("page"), "POST": named("answer")},
    "/ui/": {"GET": named("ui")},
    "/ui/offers/{namespace}/{name}": {"GET": named("offer")},
    "/ui/offers/{namespace}/all": {"GET": named("offers")},
    "/ui/{page}": {"GET": named("page")},
    "/ui/bindings": {"GET": named("bindings")},
}


async def answered(method, path):
    try:
        return (await Router(ROUTES)(Request(method, path))).body.decode()
    except RequestRefused as refused:
        return refused.status, dict(refused.headers)


@pytest.mark.parametrize(
    ("method", "path", "wanted"),
    [
        ("GET", "/", "home {}"),
        ("GET", "/export", "export {}"),
        ("HEAD", "/export", "export {}"),
        ("POST", "/consent", "answer {}"),
        ("GET", "/ui/bindings", "bindings {}"),
        ("GET", "/ui/catalogue", "page {'page': 'catalogue'}"),
        ("GET", "/ui/offers/default/all", "offers {'namespace': 'default'}"),
        ("GET", "/ui/offers/a b/ü", "offer {'namespace': 'a b', 'name': 'ü'}"),
        ("GET", "/ui/", "ui {}"),
        # Elsewhere there is nothing.
        ("GET", "", (404, {})),
        ("GET", "/ui", (404, {})),
        ("GET", "//export", (404, {})),
        ("GET", "/export/", (404, {})),
        ("GET", "/EXPORT", (404, {})),
        ("GET", "/ui/..", (404, {})),
        ("GET", "/ui/./", (404, {})),
        ("GET", "/ui/offers//x", (404, {})),
        ("GET", "/ui/offers/x/y/z", (404, {})),
        ("GET", "/ui/{page}/", (404, {})),
        ("DELETE", "/nowhere", (404, {})),
        # HEAD is a method like others.
        ("HEAD", "/", (405, {"Allow": "GET"})),
        ("DELETE", "/consent", (405, {"Allow": "GET, POST"})),
        ("get", "/export", (405, {"Allow": "GET, HEAD"})),
        ("POST", "/ui/offers/a/b", (405, {"Allow": "GET"})),
    ],
)
async def test_the_way_of_a_request(method, path, wanted):
    assert await answered(method, path) == wanted


def test_two_routes_for_the_same_paths():
    with pytest.raises(ValueError, match="two routes are for the paths of /ui/"):
        Router({"/ui/{page}": {}, "/ui/{name}": {}})
