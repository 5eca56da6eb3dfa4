"""The two clusters that a konnector stands between, by the names that errors and steps use.

Objects in the app cluster are on the *claim side*, those on the control plane on the *copy side*,
whichever of the two made them.
"""

from typing import Final

APP_CLUSTER: Final = "app-cluster"
CONTROL_PLANE: Final = "control-plane"
