"""APIServiceExports: a kind of service that is offered to one binding space."""
