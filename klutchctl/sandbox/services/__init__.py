"""What runs beside the control plane of a sandbox, as services.yaml of a fleet says."""
