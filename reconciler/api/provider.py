"""BindingProvider and BindingResponse: HTTP payloads, never stored (protocol-bind A.12).

What a reader must refuse (apiVersion, kind, version, session id) is left to the reader, which
has a sentence for each; so these fields are plain text here.
"""

from pydantic import Field

from reconciler.api.common import KLUTCH_VERSION, WireModel
from reconciler.api.export_request import APIServiceExportRequest


class OAuth2CodeGrantMethod(WireModel):
    """Where a browser starts to log in."""

    authenticated_url: str = Field(alias="authenticatedURL")


class AuthenticationMethod(WireModel):
    """`oauth2_code_grant` is there where `method` is OAuth2CodeGrant."""

    method: str
    oauth2_code_grant: OAuth2CodeGrantMethod | None = None


class BindingProvider(WireModel):
    """The answer to `GET /export`. Its apiVersion has no group; clients refuse any other."""

    api_version: str = "v1alpha1"
    kind: str = "BindingProvider"
    provider_pretty_name: str = ""
    version: str = ""
    authentication_methods: tuple[AuthenticationMethod, ...] = ()


class OAuth2CodeGrant(WireModel):
    """`sid` is the session id that the client made, `id` is `<issuer>/<subject>`."""

    sid: str
    id: str = ""


class BindingResponseAuthentication(WireModel):
    """How the user proved who they are; None where in no way that we know."""

    oauth2_code_grant: OAuth2CodeGrant | None = None


class BindingResponse(WireModel):
    """What the browser carries back. `kubeconfig` is padded standard base64 of a secret."""

    api_version: str = KLUTCH_VERSION
    kind: str = "BindingResponse"
    authentication: BindingResponseAuthentication = BindingResponseAuthentication()
    kubeconfig: str = Field(repr=False)
    requests: tuple[APIServiceExportRequest, ...] = ()
