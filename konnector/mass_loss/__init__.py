"""Limits how many copies may be deleted at once, and who has to confirm more."""
