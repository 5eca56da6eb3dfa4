"""Compares the fleet in the files with the live clusters, and decides the changes. Pure."""
