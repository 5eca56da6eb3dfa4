"""AppClusterBindings: app clusters that the backend binds, with their spaces and services."""
