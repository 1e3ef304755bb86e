"""What several workers have in common, kept in Valkey. With one worker nothing of it is loaded.

scripts.py     what is counted there, and the scripts that do it, one round trip each
link.py        the one connection of a worker: sessions, heartbeat, what happens without Valkey
admission.py   slots and the queue, over all workers
"""
