"""The command line of klutchctl, its controller, its board, and the sandbox."""
