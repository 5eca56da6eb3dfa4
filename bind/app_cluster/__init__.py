"""The parts of what is decided about an AppClusterBinding (protocol-bind.md C.6). Pure."""
