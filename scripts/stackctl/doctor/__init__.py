"""What this host has, and what is wrong with it: found, wanted, fix. Changes nothing.

facts gpus toolkit system     read it (programs on PATH, /proc, /sys); seen: a GPU's host, once
checks filechecks envcheck    judge it; gpus, toolkit and system judge what they read
examine report                all of it in order, for `doctor` and before `up`; printed
"""
