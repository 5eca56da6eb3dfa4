"""What a konnector writes into its space: the ClusterBinding, and the status of exports."""
