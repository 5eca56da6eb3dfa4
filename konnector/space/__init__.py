"""The writes of a konnector into its space: the ClusterBinding, and the status of exports."""
