"""Proofs on a GPU host: what no test without a GPU can show. `prove.py` is the program."""
