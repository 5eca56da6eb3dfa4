"""What people and pipelines see: every output from one value, one module per subject."""
