"""Builds manifests from intent: for a fleet, a backend or an installer. Pure."""
