"""Upper edges of the histograms' buckets, in seconds.

Where vLLM measures the same thing its edges are all here (vllm/v1/metrics/buckets.py), so that one
panel can show both, or their difference. Each list ends past the longest time-out that can be set,
so that no percentile sits at the last edge.
"""

from __future__ import annotations

FIRST_TOKEN = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0, 14_400.0),
)
# Below vLLM's first edge of 10 ms: a small model on a GPU makes a token in 2 ms.
PER_TOKEN = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 3600.0),
)
# Below vLLM's first edge of 0.3 s: refusals, embeddings, the model list. The last: as long as
# nginx waits.
DURATION = (
    *(0.005, 0.01, 0.025, 0.05, 0.1, 0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0),
    *(30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0, 28_800.0),
)
# Queue and hold together are two hours at most.
QUEUE = (
    *(0.001, 0.01, 0.1, 0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0),
    *(40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0),
)
