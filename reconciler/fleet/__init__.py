"""The documents of a fleet repository, read, checked and resolved. Pure."""
