"""What several workers have in common, kept in Valkey. With one worker nothing of it is loaded.

scripts.py     what is counted there, and how a script is written; sessions
slots.py       scripts for slots and the queue
windows.py     scripts for the limits of a key
link.py        the one connection of a worker: sessions, heartbeat, what happens without Valkey
patience.py    its time-out
admission.py   slots and the queue, over all workers; room.py: those that wait in this one
undertaker.py  frees what a dead worker held
"""
