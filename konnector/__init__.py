"""The agent that syncs claims up, and status and credentials down.

It stands between two clusters, which errors and steps call by these names. Objects in the app
cluster are on the *claim side*, those on the control plane on the *copy side*, in either direction.
"""

from typing import Final

APP_CLUSTER: Final = "app-cluster"
CONTROL_PLANE: Final = "control-plane"
