"""Builds the images of the three programs by buildah, and lists what they hold (`make images`).

`base` makes what they are built in and on, `building` runs the Containerfiles, `archive` reads an
image that was built, and `sbom` describes it.
"""
