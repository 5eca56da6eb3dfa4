"""Informers of the konnector: of single objects, of a binding space, of a bound kind."""
