"""APIServiceExports, kinds that a binding space may use, and the requests for them."""
