"""ClusterBindings: the heartbeat of a konnector, and the rights in a binding space."""
