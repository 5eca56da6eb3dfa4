"""APIServiceBindings: the CRD of a bound kind, and how a binding is released."""
