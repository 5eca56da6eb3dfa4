"""A look at a front door or a provider before anybody binds: `klutchctl doctor URL`."""
