"""Two engines behind one gateway: by model, by conversation, and what is held for whom."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from common.fake_vllm import Behaviour, FakeVLLM
from common.rawhttp import Client, Reply, build, once
from common.script import Pause, Send, answer, sse_head
from common.servers import AUTH, CHAT, KEY, GatewayProcess, wait_until, write_keys

Start = Callable[..., GatewayProcess]
STREAM = b'{"stream":true}'
FORM = {**AUTH, "content-type": "multipart/form-data; boundary=b"}


@pytest.fixture
def pair() -> Iterator[tuple[FakeVLLM, FakeVLLM]]:
    """One serves `big`, the other `small`; both have the name `default`, and `shared`."""
    first = Behaviour(models=("big", "default", "shared"))
    second = Behaviour(models=("small", "default", "shared"))
    with FakeVLLM(first) as big, FakeVLLM(second) as small:
        yield big, small


def urls(*fakes: FakeVLLM) -> str:
    return ",".join(fake.url for fake in fakes)


def serves(engine: dict[str, Any]) -> bool:
    return engine["ready"] and not engine["ejected"]


def all_seen(gateway: GatewayProcess) -> None:
    """Every engine is ready, and back where it was lost."""
    wait_until(lambda: all(map(serves, gateway.status()["engines"])))


def ask(gateway: GatewayProcess, path: str = CHAT, **body: object) -> Reply:
    return once(gateway.port, "POST", path, AUTH, json.dumps(body).encode())


def form(model: str | None) -> bytes:
    part = b'--b\r\nContent-Disposition: form-data; name="%b"\r\n\r\n%b\r\n'
    fields = [(b"prompt", b"model"), *([(b"model", model.encode())] if model else [])]
    return b"".join(part % each for each in fields) + b"--b--\r\n"


def test_a_request_goes_to_an_engine_of_its_model(
    pair: tuple[FakeVLLM, FakeVLLM], start: Start
) -> None:
    big, small = pair
    gateway = start(urls(*pair))
    all_seen(gateway)
    for model, fake in (("big", big), ("small", small), ("default", big), ("", big), (None, big)):
        for path in (CHAT, "/v1/messages", "/v1/embeddings", "/v1/tokenize"):
            body = {} if model is None else {"model": model}
            assert ask(gateway, path, **body).status == 200
            assert len(fake.requests) == 1, (model, path)
            fake.clear()
        reply = once(gateway.port, "POST", "/v1/audio/transcriptions", FORM, form(model))
        assert (reply.status, len(fake.requests)) == (200, 1)
        fake.clear()
    gateway.wait_event(25)
    names = {line["model"] for line in gateway.events()}
    assert names == {"big", "small", "default"}
    listed = once(gateway.port, "GET", "/v1/models", AUTH).json()["data"]
    assert [each["id"] for each in listed] == ["big", "default", "shared", "small"]


def test_a_name_that_both_list_goes_to_either(
    pair: tuple[FakeVLLM, FakeVLLM], start: Start
) -> None:
    big, small = pair
    gateway = start(urls(*pair))
    all_seen(gateway)
    big.enqueue(Pause(30))
    with gateway.client() as client:
        client.send(build("POST", CHAT, AUTH, b'{"model":"shared"}'))
        big.wait_until(lambda: big.requests)
        assert ask(gateway, model="shared").status == 200
    assert len(small.requests) == 1


LIST = "The model `{}` does not exist. Served: big, default, shared, small."


def test_a_name_that_nobody_serves(pair: tuple[FakeVLLM, FakeVLLM], start: Start) -> None:
    """In the API's form, without a slot, and without an engine hearing of it."""
    gateway = start(urls(*pair), max_concurrency=1)
    all_seen(gateway)
    pair[0].enqueue(Send(sse_head()), Pause(30))
    with gateway.client() as running:
        running.send(build("POST", CHAT, AUTH, STREAM))
        pair[0].wait_until(lambda: pair[0].requests)
        reply = ask(gateway, model="gpt-4o")
        assert (reply.status, reply.json()) == (
            404,
            {
                "error": {
                    "message": LIST.format("gpt-4o"),
                    "type": "invalid_request_error",
                    "param": None,
                    "code": "model_not_found",
                }
            },
        )
        reply = ask(gateway, "/v1/messages", model="claude")
        assert (reply.status, reply.json()["type"]) == (404, "error")
        assert reply.json()["error"] == {
            "type": "not_found_error",
            "message": LIST.format("claude"),
        }
        reply = once(gateway.port, "POST", "/v1/audio/translations", FORM, form("whisper"))
        assert (reply.status, reply.json()["error"]["message"]) == (404, LIST.format("whisper"))
    assert len(pair[0].requests) == 1
    assert not pair[1].requests
    line = gateway.wait_event(2)
    assert (line["outcome"], line["reason"], line["model"]) == (
        *("rejected", "model_not_found"),
        "other",
    )


def test_a_key_reads_of_its_own_models_only(
    pair: tuple[FakeVLLM, FakeVLLM], start: Start, tmp_path: Path
) -> None:
    text = f'[[key]]\nname = "some"\nkey = "{KEY}"\nmodels = ["small", "old"]\n'
    gateway = start(urls(*pair), keys_file=write_keys(tmp_path, text))
    all_seen(gateway)
    reply = ask(gateway, model="old")
    assert (reply.status, reply.json()["error"]["message"]) == (
        404,
        "The model `old` does not exist. Served: small.",
    )
    assert ask(gateway, model="big").status == 403
    assert ask(gateway).status == 403  # the default is big
    assert ask(gateway, model="small").status == 200
    assert not pair[0].requests


def test_one_engine_answers_the_same(fake: FakeVLLM, start: Start) -> None:
    gateway = start(fake.url)
    gateway.wait_ready()
    reply = ask(gateway, model="n")
    assert (reply.status, reply.json()["error"]["message"]) == (
        404,
        "The model `n` does not exist. Served: m.",
    )
    assert ask(gateway, model="m").status == 200
    assert ask(gateway, model=["n"]).status == 200  # the engine says what is wrong with that
    assert len(fake.requests) == 2


def held(gateway: GatewayProcess, client: Client, model: str) -> None:
    client.send(build("POST", CHAT, AUTH, json.dumps({"model": model}).encode()))


def test_what_is_held_is_judged_by_what_is_served_then(start: Start) -> None:
    """One engine comes up with another model than it had before: a swap."""
    with FakeVLLM(Behaviour(models=("old", "default"))) as fake:
        gateway = start(fake.url, hold_s=20)
        gateway.wait_ready()
        assert ask(gateway, model="old").status == 200
        fake.behaviour.health = 503
        wait_until(lambda: once(gateway.port, "GET", "/readyz").status == 503)
        with gateway.client() as old, gateway.client() as new, gateway.client() as alias:
            for client, model in ((old, "old"), (new, "new"), (alias, "default")):
                held(gateway, client, model)
            fake.behaviour.models = ("new", "default")
            fake.behaviour.health = 200
            assert new.read_body(new.read_head()).status == 200
            assert alias.read_body(alias.read_head()).status == 200
            reply = old.read_body(old.read_head())
        assert (reply.status, reply.json()["error"]["message"]) == (
            404,
            "The model `old` does not exist. Served: new, default.",
        )


def test_a_request_waits_for_the_engine_of_its_model(
    pair: tuple[FakeVLLM, FakeVLLM], start: Start
) -> None:
    """Without a slot: the other engine goes on. Then it is answered, or not found."""
    small = pair[1]
    gateway = start(urls(*pair), hold_s=20, max_concurrency=1)
    all_seen(gateway)
    for models, status in ((("small",), 200), (("other",), 404)):
        small.behaviour.health = 503
        wait_until(lambda: not gateway.status()["engines"][1]["ready"])
        with gateway.client() as client:
            held(gateway, client, "small")
            for _ in range(3):
                assert ask(gateway, model="big").status == 200
            assert ask(gateway, model="gpt-4o").status == 404
            small.behaviour.models, small.behaviour.health = models, 200
            assert client.read_body(client.read_head()).status == status
    assert len(small.requests) == 1


def test_a_hold_for_one_engine_ends_with_its_phase(
    pair: tuple[FakeVLLM, FakeVLLM], start: Start
) -> None:
    with FakeVLLM() as up, FakeVLLM() as down:
        up.behaviour.script = answer({"phase": "ready", "ready": True})
        down.behaviour.script = answer(
            {"phase": "loading", "ready": False, "served_model_names": ["next"]}
        )
        gateway = start(urls(*pair), hold_s=0.3, queue_size=1, status_urls=urls(up, down))
        gateway.wait_ready()
        wait_until(lambda: gateway.status()["engines"][1]["phase"] == "loading")
        reply = ask(gateway, model="next")
        assert (reply.status, reply.json()["error"]["code"]) == (503, "not_ready")
        assert "(phase: loading)" in reply.json()["error"]["message"]
        assert ask(gateway, model="big").status == 200
        # Drained by name: its model waits, what names none goes on.
        up.behaviour.script = answer({"phase": "draining", "ready": False})
        down.behaviour.script = answer({"phase": "ready", "ready": True})
        wait_until(lambda: [each["ready"] for each in gateway.status()["engines"]] == [False, True])
        assert ask(gateway, model="big").status == 503
        assert ask(gateway, model="default").status == 200
        assert len(pair[1].requests) == 1


def test_only_so_many_wait_for_one_engine(pair: tuple[FakeVLLM, FakeVLLM], start: Start) -> None:
    gateway = start(urls(*pair), hold_s=60, queue_size=1)
    all_seen(gateway)
    pair[1].behaviour.health = 503
    wait_until(lambda: not gateway.status()["engines"][1]["ready"])
    with gateway.client() as first, gateway.client() as second:
        held(gateway, first, "small")
        held(gateway, second, "small")
        one_of_both = gateway.wait_event()
    assert (one_of_both["status"], one_of_both["reason"]) == (503, "overloaded")
    line = gateway.wait_event(2)  # who leaves gives the place back
    assert line["outcome"] == "client_left"
    wait_until(lambda: gateway.status()["gateway"]["in_flight"] == 0)


def conversation(number: int, turns: int) -> Iterator[bytes]:
    """The bodies of its turns, each with all that was said before."""
    said: list[dict[str, str]] = [{"role": "system", "content": "You are terse."}]
    for turn in range(turns):
        said.append({"role": "user", "content": f"{number}, {turn}?"})
        yield json.dumps({"model": "shared", "messages": said}).encode()
        said.append({"role": "assistant", "content": "ok"})


def test_a_conversation_stays_at_its_engine(pair: tuple[FakeVLLM, FakeVLLM], start: Start) -> None:
    """Over turns, and over gateways, which share nothing."""
    gateways = [start(urls(*pair)) for _ in range(2)]
    for gateway in gateways:
        all_seen(gateway)
    went: list[set[int]] = []
    for number in range(12):
        for turn, body in enumerate(conversation(number, 4)):
            reply = once(gateways[turn % 2].port, "POST", CHAT, AUTH, body)
            assert reply.status == 200
        counts = [len(fake.requests) for fake in pair]
        went.append({index for index, count in enumerate(counts) if count})
        for fake in pair:
            fake.clear()
    assert all(len(engines) == 1 for engines in went)
    assert {0} in went
    assert {1} in went


def test_an_engine_that_is_lost_and_back_has_its_conversations(
    pair: tuple[FakeVLLM, FakeVLLM], start: Start
) -> None:
    gateway = start(urls(*pair))
    all_seen(gateway)

    def where() -> list[bool]:
        """Of each conversation: it went to the first engine."""
        found = []
        for number in range(12):
            body = next(conversation(number, 1))
            assert once(gateway.port, "POST", CHAT, AUTH, body).status == 200
            found.append(bool(pair[0].requests))
            for fake in pair:
                fake.clear()
        return found

    before = where()
    pair[0].stop_listening(reset=True)
    assert not any(where())
    pair[0].listen()
    all_seen(gateway)
    assert where() == before


def test_the_status_shows_each_engine(pair: tuple[FakeVLLM, FakeVLLM], start: Start) -> None:
    gateway = start(urls(*pair))
    all_seen(gateway)
    pair[1].enqueue(Send(sse_head()), Pause(30))
    with gateway.client() as client:
        held(gateway, client, "small")
        wait_until(lambda: gateway.status()["engines"][1]["in_flight"])
        engines = gateway.status()["engines"]
    assert engines[1] == {
        "upstream": 1,
        "name": f"127.0.0.1:{pair[1].port}",
        "reachable": True,
        "ready": True,
        "phase": "ready",
        "models": ["small", "default", "shared"],
        "in_flight": 1,
        "ejected": False,
    }
