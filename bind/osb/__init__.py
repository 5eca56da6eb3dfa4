"""Serves what service brokers offer: claims of generated kinds become instances and bindings."""
