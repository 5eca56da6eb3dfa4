"""Providers: the control planes that a konnector serves, and the syncs that run for each."""
