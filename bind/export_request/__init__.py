"""APIServiceExportRequests: what an app cluster asks for, and what it is granted."""
