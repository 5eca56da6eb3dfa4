"""What people ask beside a plan: why, drift, imports, releases by name, a pull request's edits."""
