"""A ServiceBinding, and the bindings of a broker behind it."""
