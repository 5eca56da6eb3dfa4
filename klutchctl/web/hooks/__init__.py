"""Receives webhooks of Git hosts, which cause a look at the source, and nothing else."""
