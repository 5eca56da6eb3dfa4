"""Serves pages and webhooks of a fleet that is operated."""
