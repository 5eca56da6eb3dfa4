"""The only door to Kubernetes: connections, credentials and calls to API servers."""
