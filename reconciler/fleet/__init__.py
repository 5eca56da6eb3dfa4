"""What people wrote in a fleet repository, read, checked and resolved. Pure."""
