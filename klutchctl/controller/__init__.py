"""The continuous commands: `klutchctl controller`, and `klutchctl apply --watch`."""
