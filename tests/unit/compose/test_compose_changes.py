"""What an edit of .env makes anew: Compose recreates exactly the services whose hash changed."""

from __future__ import annotations

import pytest
from common.compose import CPU, Config


def hashes(config: Config, env: bytes) -> dict[str, str]:
    done = config(["--hash", "*"], env, CPU)
    assert done.returncode == 0, done.stderr
    return dict(line.split() for line in done.stdout.splitlines())


@pytest.mark.parametrize(
    ("edit", "made_anew"),
    [
        (b"MODEL=another/model", {"model", "vllm"}),
        (b"MODEL_REVISION=abc", {"model", "vllm"}),
        (b"MAX_MODEL_LEN=2048", {"vllm"}),
        (b"GATEWAY_MAX_CONCURRENCY=8", {"gateway"}),
        (b"GATEWAY_MAX_BODY_BYTES=1048576", {"nginx", "gateway"}),
        (b"GATEWAY_CORS_ORIGINS=*", {"nginx", "gateway"}),
        (b"NGINX_PORT=9000", {"nginx"}),
        (b"STACK_MODE=cpu", set()),
        (b"# a comment", set()),
    ],
)
def test_an_edit_recreates_what_it_concerns(
    config: Config, edit: bytes, made_anew: set[str]
) -> None:
    """So that an open stream through nginx and gateway outlives a change of the model."""
    before, after = hashes(config, b""), hashes(config, edit + b"\n")
    assert {name for name in before if before[name] != after[name]} == made_anew
