"""klutch-bind and konnectors beside the clusters of a sandbox, each with the rights it ships."""
