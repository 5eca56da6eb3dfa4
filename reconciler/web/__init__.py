"""Serves untrusted HTTP clients: requests as values, within limits, and answers as values."""
