"""Reports beside the plan: why, drift, imports, releases by name, a pull request."""
