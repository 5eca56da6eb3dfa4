"""Calls service brokers over HTTP: within limits, in turns, and without trust in answers."""
