"""Looks at claims, records and brokers, executes what was decided, and calls brokers."""
