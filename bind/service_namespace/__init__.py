"""APIServiceNamespaces: where the copies of the claims of one app namespace live."""
