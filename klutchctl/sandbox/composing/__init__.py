"""The composition function of the sandbox: it patches and transforms, in a process of its own."""
