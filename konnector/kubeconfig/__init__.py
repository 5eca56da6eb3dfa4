"""Connections to clusters: kubeconfigs in Secrets, where they lead, and their rotation."""
