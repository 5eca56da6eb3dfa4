"""The status board: read-only pages of a fleet.

`index` and `pages` are pure; `rendering` alone knows templates, `server` alone sockets.
"""
