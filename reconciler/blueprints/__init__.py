"""From intent to manifests: the objects that a fleet, a backend or an installer wants. Pure."""
