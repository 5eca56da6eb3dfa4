"""Calls untrusted servers over HTTP within limits: identity providers, and front doors."""
