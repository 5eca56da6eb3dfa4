"""A sandbox whose clusters have nodes: what is shipped runs there as pods."""
