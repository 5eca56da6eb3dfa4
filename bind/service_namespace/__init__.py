"""APIServiceNamespaces: the service namespaces of app namespaces."""
