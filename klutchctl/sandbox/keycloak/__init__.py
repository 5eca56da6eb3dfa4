"""A Keycloak beside the clusters of a sandbox: real people, groups and machines to sign in as."""
