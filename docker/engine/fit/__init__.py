"""Does a model fit a GPU, and with how much context and concurrency? Before anything is downloaded.

    source (hub, folder) ─▶ shape ─▶ weights ┐
                                  └▶ kvcache ┼▶ memory ─▶ judge ─▶ plans
                            GPU, settings ───┘

Standard library only. The arithmetic follows vLLM 0.24 to 0.33 (v1/worker/gpu_worker.py
determine_available_memory, v1/core/kv_cache_planning.py); docs/engine.md has it in words.
"""
