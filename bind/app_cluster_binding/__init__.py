"""AppClusterBindings: an app cluster that the backend binds, its binding space and its services."""
