"""CUDA graphs: settings that rule them out, and what the workers prove."""
