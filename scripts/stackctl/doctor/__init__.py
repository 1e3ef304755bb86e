"""What this host has, and what is wrong with it: found, wanted, fix. Changes nothing.

facts cards                   read it (programs on PATH, /proc, /sys); seen: a GPU's host, once
toolkit system xids           read a part of a GPU's host and judge it
checks gpus gpumemory         judge it; so do filechecks and envcheck
examine report                all of it in order, for `doctor` and before `up`; printed
"""
