"""Parts of the decisions about bindings."""
