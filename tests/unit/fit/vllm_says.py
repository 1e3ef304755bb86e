"""What vLLM says of a model (tests/engine/shapes_with_vllm.py), held against the arithmetic."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from fit import kvcache, weights
from fit.shape import read


def holds(answer: dict[str, Any], config: dict[str, Any]) -> None:
    """Asserts that the arithmetic comes to vLLM's own numbers for one model on one rank."""
    name, ranks = answer["model"], answer["ranks"]
    shape = read(config)
    size = weights.from_shape(shape).per_rank(ranks)
    # Biases, sinks and the norms of heads are the rest.
    assert size == pytest.approx(answer["bytes"], rel=0.001), name
    cache = kvcache.of(shape, ranks=ranks, dtype=None, in_flight=0)
    kinds = Counter("Sliding" in group["kind"] for group in answer["groups"])
    assert (cache.full, cache.local) == (kinds[False], kinds[True]), name
    assert cache.group_layers == max(group["layers"] for group in answer["groups"]), name
    assert {cache.layer_bytes} == {group["token_bytes"] for group in answer["groups"]}, name
    assert {shape.window} >= {group["window"] for group in answer["groups"] if group["window"]}
    if answer["context"] is not None:
        assert shape.context == answer["context"], name
