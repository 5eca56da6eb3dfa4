"""Connections from kubeconfigs: from files as kubectl finds and merges them, and from Secrets."""

from reconciler.kube.kubeconfig.files import (
    ContextSummary,
    contexts,
    from_content,
    from_secret,
    load,
    merged,
    read_file,
    search_paths,
)

__all__ = [
    "ContextSummary",
    "contexts",
    "from_content",
    "from_secret",
    "load",
    "merged",
    "read_file",
    "search_paths",
]
