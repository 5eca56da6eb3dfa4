"""ClusterBindings: the heartbeat that the konnector writes, and what it was given."""
