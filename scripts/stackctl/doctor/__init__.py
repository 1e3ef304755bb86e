"""What the host has (facts), what we think of it (judges), and both together.

Nothing here changes the host.
"""
