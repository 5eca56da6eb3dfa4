"""ClusterBindings: the heartbeat of a konnector, and what a binding space holds."""
