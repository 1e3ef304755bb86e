"""Limits of one key: requests and tokens in any 60 s, and requests at one time.

limiter.py   the seam: what the data path calls, and the pass of a key without limits
told.py      what a client reads: the x-ratelimit-* headers and the 429
window.py    the last 60 s of one key, in steps of a second
local.py     the limiter of one process, in memory
"""
