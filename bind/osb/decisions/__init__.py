"""Decide about a claim and its records after a look: pure, one step at a time."""
