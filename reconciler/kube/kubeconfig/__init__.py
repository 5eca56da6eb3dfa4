"""Connections from kubeconfigs, as kubectl finds and merges files, or in Secrets, and of a pod."""

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
