"""A node for each cluster of a sandbox: a kubelet and containerd in namespaces of their own."""
