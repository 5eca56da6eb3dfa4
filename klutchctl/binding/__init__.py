"""`klutchctl bind` and `kubectl-bind`: an app cluster asks a provider for a service."""
