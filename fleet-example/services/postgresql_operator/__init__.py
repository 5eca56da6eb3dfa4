"""An operator as a provider of a service would write it: databases in a real PostgreSQL server.

`instance`, `binding`, `backup` and `restore` decide, each about one object, and touch nothing;
`postgres` and `dumps` do what was decided; `controllers` brings the two together, on the kernel of
klutchctl (`reconciler`).
"""
