"""What transformers fills in where a config leaves a number out, as the configs of multi-modal
models do (their text_config names only what differs)."""

from __future__ import annotations

from collections.abc import Mapping

DEFAULTS: Mapping[str, Mapping[str, object]] = {
    "llama": {
        "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32,
        "num_attention_heads": 32, "vocab_size": 32000, "max_position_embeddings": 2048,
        "tie_word_embeddings": False,
    },
    "mistral": {
        "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 32000,
        "max_position_embeddings": 131072, "sliding_window": 4096, "tie_word_embeddings": False,
    },
    "qwen2": {
        "hidden_size": 4096, "intermediate_size": 22016, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 32, "vocab_size": 151936,
        "max_position_embeddings": 32768, "use_sliding_window": False, "max_window_layers": 28,
        "tie_word_embeddings": False,
    },
    "gemma2": {
        "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26,
        "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "vocab_size": 256000,
        "max_position_embeddings": 8192, "sliding_window": 4096, "tie_word_embeddings": True,
    },
    "gemma3_text": {
        "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26,
        "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "vocab_size": 262208,
        "max_position_embeddings": 131072, "sliding_window": 4096, "tie_word_embeddings": True,
    },
}  # fmt: skip
