"""Watches a source of files, and keeps the clusters in its state."""
