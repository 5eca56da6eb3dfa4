"""Where the files of a fleet repository come from: a folder, or a Git commit."""
