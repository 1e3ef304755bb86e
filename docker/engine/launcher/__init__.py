"""Starts vLLM from environment variables, watches it and keeps its exit code.

Standard library only, so that the package runs in any vLLM image and in local mode as it is.
Imports go one way: __main__ → run → supervise|server → settings|phases|… (pure) → values.
"""
