"""The status board: pages of a fleet, for reading alone.

`index` and `pages` are pure; `rendering` alone knows templates, `server` alone sockets.
"""
