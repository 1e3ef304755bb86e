"""The OpenAI-compatible gateway between nginx and vLLM: keys, admission and a byte relay."""

__version__ = "0.1.0"
