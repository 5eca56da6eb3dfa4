"""Objects of one kind, kept equal to what an API server holds: informers and their stores."""
