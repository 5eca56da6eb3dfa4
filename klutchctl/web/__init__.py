"""Serves the board and webhooks of a fleet."""
