"""Connects to clusters by kubeconfigs in Secrets, and rotates those."""
