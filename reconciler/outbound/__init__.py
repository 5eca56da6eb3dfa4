"""Bounded HTTP to servers that may lie: identity providers, and front doors of others."""
