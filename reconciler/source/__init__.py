"""Sources of a fleet's files: a folder, or a Git commit."""
