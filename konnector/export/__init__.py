"""APIServiceExports: what a control plane offers, and how the konnector answers."""
