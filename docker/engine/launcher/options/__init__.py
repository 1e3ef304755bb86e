"""Settings from the environment, and vLLM's arguments made of them."""
