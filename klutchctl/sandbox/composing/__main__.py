"""Serve Crossplane as function-patch-and-transform: `python -m ... ADDRESS TLS_FOLDER`."""

import sys
from typing import Any

from crossplane.function import resource, response, runtime
from crossplane.function.proto.v1 import run_function_pb2 as wire
from crossplane.function.proto.v1 import run_function_pb2_grpc as services

from klutchctl.sandbox.composing.patches import Observed, Refused, compose
from reconciler.core.manifest import get_maps


class PatchAndTransform(services.FunctionRunnerServiceServicer):
    """The function."""

    async def RunFunction(  # noqa: N802 (a name of the wire)
        self, request: wire.RunFunctionRequest, _context: Any
    ) -> wire.RunFunctionResponse:
        """Answer with the desired state, or with the reason that ends the pipeline."""
        answer = response.to(request)
        observed = {
            name: Observed(resource.struct_to_dict(one.resource), dict(one.connection_details))
            for name, one in request.observed.resources.items()
        }
        try:
            composed = compose(
                get_maps(resource.struct_to_dict(request.input), "resources"),
                resource.struct_to_dict(request.observed.composite.resource),
                resource.struct_to_dict(request.desired.composite.resource),
                observed,
            )
        except Refused as error:
            response.fatal(answer, str(error))
            return answer
        for warning in composed.warnings:
            response.warning(answer, warning)
        resource.update(answer.desired.composite, dict(composed.composite))
        answer.desired.composite.connection_details.update(composed.details)
        for name, (manifest, ready) in composed.resources.items():
            made = answer.desired.resources[name]
            made.Clear()
            resource.update(made, dict(manifest))
            made.ready = wire.READY_TRUE if ready else wire.READY_UNSPECIFIED
        return answer


def main(address: str, certificates: str) -> None:
    """Serve until SIGTERM, clients with a certificate of the same authority only."""
    credentials = runtime.load_credentials(certificates)
    runtime.serve(PatchAndTransform(), address, creds=credentials, insecure=False)


if __name__ == "__main__":
    main(*sys.argv[1:])
