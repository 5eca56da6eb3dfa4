"""Maps app namespaces to their service namespaces on the control plane."""
