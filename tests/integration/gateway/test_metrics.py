"""/metrics of the real process: what scanners cannot do to it, and that it equals what was sent."""

from __future__ import annotations

import random
import string
from collections.abc import Iterator
from pathlib import Path

import pytest
from common.fake_vllm import FakeVLLM
from common.rawhttp import Client, build, once
from common.script import Pause, Send, chunk, delta_event, sse_head, stream
from common.servers import AUTH, CHAT, GatewayProcess, wait_until
from prometheus_client.parser import text_string_to_metric_families

Page = dict[tuple[str, frozenset[tuple[str, str]]], float]
DICE = random.Random(61)  # noqa: S311 - a test's own dice


@pytest.fixture
def own(fake: FakeVLLM, keys: Path) -> Iterator[GatewayProcess]:
    """A gateway that nobody has asked anything yet."""
    with GatewayProcess(keys, fake.url, max_concurrency=64) as gateway:
        gateway.wait_ready()
        fake.clear()
        yield gateway


def scrape(gateway: GatewayProcess) -> Page:
    """The page, read by Prometheus' own parser; each series once."""
    reply = once(gateway.port, "GET", "/metrics")
    assert reply.status == 200
    assert reply.header("content-type") == "text/plain; version=0.0.4; charset=utf-8"
    samples = [
        sample
        for family in text_string_to_metric_families(reply.body.decode())
        for sample in family.samples
    ]
    page = {(each.name, frozenset(each.labels.items())): each.value for each in samples}
    assert len(page) == len(samples)
    return page


def value(page: Page, name: str, **labels: str) -> float | None:
    return page.get((name, frozenset(labels.items())))


def total(page: Page, name: str, **labels: str) -> float:
    """The sum over all series with at least these labels."""
    wanted = labels.items()
    return sum(n for (each, have), n in page.items() if each == name and wanted <= have)


def word(letters: str = string.ascii_letters) -> str:
    return "".join(DICE.choices(letters, k=12))


def ask_all(client: Client, requests: list[bytes]) -> set[int]:
    """The statuses of requests that are sent all at once, one behind the other."""
    client.send(b"".join(requests))
    return {client.read_body(client.read_head()).status for _ in requests}


@pytest.mark.timeout(180)
def test_scanners_make_no_series(own: GatewayProcess, fake: FakeVLLM) -> None:
    """B61."""
    before = scrape(own)
    with own.client() as client:
        for _ in range(50):
            paths = (f"/{word()}/{word()}" for _ in range(100))
            assert ask_all(client, [build("GET", path, {}, b"") for path in paths]) == {404}
        odd = '"\n\\}' + "é" * 10_240
        for model in (odd, *(word() for _ in range(1000))):
            reply = client.request("POST", CHAT, AUTH, {"model": model, "messages": []})
            assert reply.status == 404
    for number in range(1000):
        with own.client() as client:
            client.send(build(f"{word(string.ascii_uppercase)}{number}", "/v1/models", {}, b""))
            assert 400 <= client.read_head().status < 500
    after = scrape(own)
    assert len(after) - len(before) < 20
    assert total(after, "gateway_requests_total", route="unmatched", status="404") == 5000
    assert total(after, "gateway_requests_total", route=CHAT, status="404") == 1001
    assert value(after, "gateway_key_requests_total", key="default", outcome="rejected") == 1001


def test_a_stream_counts_when_it_is_over(own: GatewayProcess, fake: FakeVLLM) -> None:
    """B63: the duration is that of the whole answer, not of its head."""
    events = [delta_event(str(number)) for number in range(3)]
    held = [Send(sse_head()), *(Send(chunk(each)) for each in events), Pause(600)]
    fake.enqueue(*held)
    with own.client() as client:
        client.send(build("POST", CHAT, AUTH, b'{"stream":true}'))
        reply = client.read_head()
        next(client.pieces(reply))
        during = scrape(own)
        assert value(during, "gateway_requests_in_flight") == 1
        assert value(during, "gateway_upstream_requests_in_flight", upstream="0") == 1
        assert value(during, "gateway_upstream_ready", upstream="0") == 1
        assert total(during, "gateway_requests_total", route=CHAT) == 0
        assert value(during, "gateway_time_to_first_token_seconds_count") == 0
    duration = "gateway_request_duration_seconds_count"
    wait_until(lambda: value(scrape(own), duration, route="any", outcome="client_left") == 1)
    after = scrape(own)
    assert value(after, "gateway_requests_in_flight") == 0
    assert value(after, duration, route=CHAT, outcome="ok") == 0
    assert value(after, "gateway_time_to_first_token_seconds_count") == 1
    assert value(after, "gateway_sse_events_total") == 3
    assert total(after, "gateway_requests_total", route=CHAT) == 1


def test_counts_equal_what_was_sent(own: GatewayProcess, fake: FakeVLLM) -> None:
    texts = ("a", "b")
    fake.behaviour.script = stream(*texts)
    body = b'{"stream":true}'
    with own.client() as client:
        replies = [client.request("POST", CHAT, AUTH, body) for _ in range(40)]
        for _ in range(3):
            client.request("POST", CHAT, {}, body)
    fake.behaviour.script = None
    page = scrape(own)
    ok = {"route": CHAT, "method": "POST", "status": "200", "outcome": "ok"}
    assert value(page, "gateway_requests_total", **ok) == 40
    assert value(page, "gateway_rejected_total", reason="invalid_api_key") == 3
    refused = total(page, "gateway_requests_total", status="401", outcome="rejected")
    assert refused == 3
    assert value(page, "gateway_request_duration_seconds_count", route=CHAT, outcome="ok") == 40
    assert value(page, "gateway_time_to_first_token_seconds_count") == 40
    assert value(page, "gateway_queue_seconds_count") == 40
    assert value(page, "gateway_sse_events_total") == 40 * (len(texts) + 3)
    assert value(page, "gateway_received_bytes_total") == 40 * len(body)
    assert value(page, "gateway_sent_bytes_total") >= sum(len(each.body) for each in replies)
    assert value(page, "gateway_slots") == 64


def test_the_process_is_on_the_page_and_needs_no_key(own: GatewayProcess) -> None:
    page = scrape(own)
    assert value(page, "gateway_process_resident_memory_bytes") > 1e7
    assert not {name for name, _ in page if not name.startswith("gateway_")}


@pytest.mark.parametrize("method", ["POST", "HEAD", "OPTIONS"])
def test_only_get(gateway: GatewayProcess, method: str) -> None:
    reply = once(gateway.port, method, "/metrics")
    assert (reply.status, reply.header("allow")) == (405, "GET")
