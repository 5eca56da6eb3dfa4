"""Limits how many copies may be deleted at once, and asks a person about more."""
