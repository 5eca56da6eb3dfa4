"""Runs function-patch-and-transform for the sandbox, as a process."""
