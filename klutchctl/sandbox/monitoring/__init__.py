"""A Prometheus beside the clusters of a sandbox, with the rules that this repository ships."""
