"""Decides about claims and their records after a look, one step at a time. Pure."""
