"""APIServiceExports, the kinds that are offered to a binding space, and the requests for them."""
