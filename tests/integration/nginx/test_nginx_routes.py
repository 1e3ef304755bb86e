"""What may reach the gateway, and that it sees the target exactly as the client wrote it."""

from common.fake_vllm import FakeVLLM
from common.front import Front
from common.rawhttp import Client, once

PASSED = [
    "/v1/models",
    "/v1/models/org/name",
    "/v1/messages?beta=true",
    "/v1/chat/completions/",
    "/v1//chat/completions",
    "/v1/%252e%252e/metrics",
    "/v1/models;x",
    "/v1/models/a%2fb",
    "/livez",
    "/readyz",
    "/health",
    "/status",
    "/status/events",
    "/console",
]
DENIED = [
    "/",
    "/v1",
    "/V1/models",
    "//v1/models",
    "/metrics",
    "/metrics/",
    "/docs",
    "/openapi.json",
    "/tokenize",
    "/sleep",
    "/health/x",
    "/livez/",
    "/_stack/error",
    "/v1/../metrics",
    "/v1/%2e%2e/metrics",
    "/v1/..%2fmetrics",
    "/metrics/../v1/models",
    "/x/../livez",
    "/%6civez",
    "/%76%31/models",
    "/v1\\metrics",
    "/v1%5cmetrics",
    "/nginx.conf",
]


def test_allowed_targets_pass_byte_for_byte(fake: FakeVLLM, front: Front) -> None:
    for target in PASSED:
        assert once(front.port, "GET", target).status == 200, target
    assert [one.target for one in fake.log] == PASSED


def test_everything_else_is_a_404_in_json(fake: FakeVLLM, front: Front) -> None:
    for target in DENIED:
        reply = once(front.port, "GET", target)
        assert (reply.status, reply.json()["error"]["code"]) == (404, "not_found"), target
    assert fake.log == []


def test_methods_are_the_gateways_affair(fake: FakeVLLM, front: Front) -> None:
    methods = ["GET", "HEAD", "OPTIONS", "DELETE", "PUT", "PATCH"]
    for method in methods:
        with Client(front.port) as client:
            client.request(method, "/v1/chat/completions", stream=True)
    assert [one.method for one in fake.log] == methods


def test_an_absolute_target_cannot_choose_another_host(fake: FakeVLLM, front: Front) -> None:
    assert once(front.port, "GET", "http://vllm:8000/v1/models").status == 200
    assert [one.target for one in fake.log] == ["/v1/models"]
    assert once(front.port, "GET", "http://vllm:8000/metrics").status == 404
    assert len(fake.log) == 1


def test_any_host_name_is_served(fake: FakeVLLM, front: Front) -> None:
    for host in ("localhost", "evil.example", "10.0.0.1:8080"):
        assert once(front.port, "GET", "/v1/models", {"Host": host}).status == 200


def test_nginx_health_needs_no_gateway_and_is_not_logged(fake: FakeVLLM, front: Front) -> None:
    fake.stop_listening(reset=True)
    reply = once(front.port, "GET", "/nginx-health")
    assert (reply.status, reply.body) == (200, b"ok\n")
    assert "/nginx-health" not in [line["path"] for line in front.access_log()]
