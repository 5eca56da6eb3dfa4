"""Namespaces: which service namespace holds the copies of an app namespace."""
