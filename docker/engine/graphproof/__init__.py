"""A vLLM plugin that proves which CUDA graphs are in force, from inside the workers.

vLLM finds it by the dist-info folder next to it, as soon as the parent folder is on PYTHONPATH.
Without ENGINE_PROOF_DIR it does nothing. Nothing is imported here, since the launcher, which has
no vLLM, uses the modules report, counts, downgrades and verdict.
"""
