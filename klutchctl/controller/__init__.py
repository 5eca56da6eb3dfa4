"""Follow a fleet without end: `klutchctl controller`, and `klutchctl apply --watch`."""
