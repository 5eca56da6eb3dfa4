"""Claims: developers' objects, and their copies on the control plane."""
