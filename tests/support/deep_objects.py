"""Objects that are nested deeper than JSON readers and writers go."""

from reconciler.core.refs import Kind
from tests.support.clusters import LiveCluster
from tests.support.raw import http_session


def nested(levels: int) -> str:
    """Return the JSON of an object with so many others inside of each other."""
    return '{"a":' * levels + "{}" + "}" * levels


def typed(kind: Kind, rest: str, *, name: str = "deep", metadata: str = "") -> str:
    """Return the JSON of an object; `rest` and what is added to its metadata are JSON too."""
    named = f'{{"name":"{name}"{metadata}}}'
    return f'{{"apiVersion":"{kind.api_version}","kind":"{kind.kind}","metadata":{named},{rest}}}'


async def post(live: LiveCluster, kind: Kind, namespace: str, text: str) -> None:
    """Create an object past our client, which writes none that is so deep."""
    root = "apis" if kind.group else "api"
    path = f"/{root}/{kind.api_version}/namespaces/{namespace}/{kind.plural}"
    headers = {"Content-Type": "application/json"}
    async with (
        http_session(live.connection) as session,
        session.post(path, data=text, headers=headers) as response,
    ):
        assert response.status == 201, await response.text()
