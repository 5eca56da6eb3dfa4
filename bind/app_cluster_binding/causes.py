"""What an AppClusterBinding says in its conditions beside the original's two types.

A type of ours appears only once something was wrong, and is True from then on: an
AppClusterBinding that never had trouble has the conditions of the original and no others.
"""

from typing import Final

from reconciler.core.conditions import ERROR, INFO, WARNING, Cause
from reconciler.core.reasons import EXPORTS_READY, KONNECTOR_DEPLOYED, SECRET_VALID

SPACE_READY: Final = "BindingSpaceReady"
BINDINGS_READY: Final = "APIServiceBindingsReady"
CLEANED_UP: Final = "CleanedUp"

SECRET_NOT_GRANTED: Final = Cause(SECRET_VALID, ERROR, "KubeconfigSecretNotGranted")

SPACE_NAME_INVALID: Final = Cause(SPACE_READY, ERROR, "BindingSpaceNameInvalid")
SPACE_TAKEN: Final = Cause(SPACE_READY, ERROR, "BindingSpaceTaken")
SPACE_TERMINATING: Final = Cause(SPACE_READY, WARNING, "BindingSpaceTerminating")
SPACE_FAILED: Final = Cause(SPACE_READY, ERROR, "BindingSpaceFailed")

TEMPLATE_NOT_FOUND: Final = Cause(BINDINGS_READY, ERROR, "APIServiceExportTemplateNotFound")
BINDING_FAILED: Final = Cause(BINDINGS_READY, ERROR, "APIServiceBindingFailed")
BINDING_INVALID: Final = Cause(BINDINGS_READY, ERROR, "APIServiceBindingInvalid")
BINDINGS_DRAINING: Final = Cause(BINDINGS_READY, INFO, "Draining")

REQUEST_WAITING: Final = Cause(EXPORTS_READY, WARNING, "APIServiceExportRequestWaiting")
REQUEST_REFUSED: Final = Cause(EXPORTS_READY, ERROR, "APIServiceExportRequestFailed")
EXPORT_FAILED: Final = Cause(EXPORTS_READY, ERROR, "APIServiceExportFailed")

OVERRIDE_NOT_ALLOWED: Final = Cause(KONNECTOR_DEPLOYED, ERROR, "OverrideNotAllowed")
KONNECTOR_PROGRESSING: Final = Cause(KONNECTOR_DEPLOYED, INFO, "KonnectorProgressing")

CLEANUP_WAITING: Final = Cause(CLEANED_UP, INFO, "Waiting")
CLEANUP_TIMED_OUT: Final = Cause(CLEANED_UP, ERROR, "DeadlineExceeded")
CLEANUP_FAILED: Final = Cause(CLEANED_UP, ERROR, "CleanupFailed")
