"""Who and what gets in, through both doors: sizes, paths, keys, claims, ambiguous framing.

B34, B38, B39, B41, B42, B45.
"""

from __future__ import annotations

import base64
import os
from functools import partial
from pathlib import Path

import pytest
from common.front import MAX_BODY
from common.rawhttp import Reply, build, once
from common.row import Door, running
from common.script import chunk
from common.servers import AUTH, CHAT, KEY, wait_until

GOOD = f"Bearer {KEY}".encode()
PIPELINED = b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"


def in_json(reply: Reply) -> str:
    """The code of an OpenAI-shaped error."""
    assert (reply.header("content-type") or "").startswith("application/json"), reply
    error = reply.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["message"]
    return str(error["code"])


def in_chunks(size: int, piece: int = 65_536) -> bytes:
    """A chat request of that many bytes without a length."""
    start = build("POST", CHAT, {**AUTH, "transfer-encoding": "chunked"}, b"")
    body = b"".join(chunk(b"x" * min(piece, size - at)) for at in range(0, size, piece))
    return start.replace(b"content-length: 0\r\n", b"") + body + chunk(b"")


def test_a_picture_passes(door: Door) -> None:
    """B34: 1.1 MiB with a base64 image."""
    picture = base64.b64encode(os.urandom(860_000))
    body = (
        b'{"messages":[{"role":"user","content":[{"url":"data:image/png;base64,%b"}]}]}' % picture
    )
    assert len(body) > 1.09 * 2**20
    assert door.ask(body=body).status == 200
    assert door.received.body == body


def test_one_byte_too_many(door: Door) -> None:
    """B34: the limit itself passes, one byte more is a 413 in JSON; with and without a length."""
    whole = b'{"a":"' + b"x" * (MAX_BODY - 8) + b'"}'
    assert door.ask(body=whole).status == 200
    assert len(door.received.body) == MAX_BODY
    with door.client() as client:
        reply = client.request("POST", CHAT, AUTH, whole + b" ")
        assert (reply.status, in_json(reply)) == (413, "body_too_large")
        assert (reply.header("connection") == "close") or client.request("GET", "/livez").whole
    reply = door.raw(in_chunks(MAX_BODY + 1))
    assert (reply.status, in_json(reply)) == (413, "body_too_large")
    assert len(door.engine.requests) == 1


@pytest.mark.parametrize("length", ["99999999999", "9223372036854775807"])
@pytest.mark.parametrize("expect", [{}, {"expect": "100-continue"}])
def test_a_huge_length_and_no_body(door: Door, length: str, expect: dict[str, str]) -> None:
    """B34: answered without waiting for a byte of it."""
    reply = door.raw(build("POST", CHAT, {**AUTH, **expect, "content-length": length}, b""))
    assert (reply.status, in_json(reply)) == (413, "body_too_large")


def test_a_length_that_is_no_number_of_bytes(door: Door) -> None:
    reply = door.raw(build("POST", CHAT, {**AUTH, "content-length": "9" * 40}, b""))
    assert reply.status in {400, 413}
    in_json(reply)


def test_a_stream_of_chunks_without_an_end(door: Door) -> None:
    """B34: the limit counts what came, not what was promised."""
    start = build("POST", CHAT, {**AUTH, "transfer-encoding": "chunked"}, b"")
    with door.client() as client:
        client.send(start.replace(b"content-length: 0\r\n", b""))
        client.send(chunk(b"x" * 65_536) * (MAX_BODY // 65_536 + 1))
        reply = client.read_body(client.read_head())
    assert (reply.status, in_json(reply)) == (413, "body_too_large")
    assert not door.engine.requests


NO_OBJECTS = {
    "nothing": b"",
    "not json": b"not json",
    "half": b'{"a":',
    "a form": b"model=m&stream=true",
    "a list": b'[{"model":"m"}]',
    "a string": b'"x"',
    "a number": b"1",
    "null": b"null",
    "two": b"{}{}",
    "a comma too many": b'{"a":1,}',
    "single quotes": b"{'a':1}",
    "300,000 brackets": b"[" * 300_000,
    "300,000 brackets, closed": b'{"a":' + b"[" * 300_000 + b"]" * 300_000 + b"}",
    "100,000 braces": b'{"a":' * 100_000,
}


@pytest.mark.parametrize("name", NO_OBJECTS)
def test_a_body_that_is_no_json_object(door: Door, name: str) -> None:
    """B34 and its like: a 400 in JSON from us, no crash, and the engine is not troubled."""
    for path in (CHAT, "/v1/completions", "/v1/embeddings", "/v1/responses"):
        reply = door.ask(body=NO_OBJECTS[name], path=path)
        assert (reply.status, in_json(reply)) == (400, "invalid_request"), path
    assert not door.engine.requests


UNLISTED = """/invocations /tokenize /detokenize /pooling /classify /score /rerank /sleep /wake_up
    /collective_rpc /reset_prefix_cache /reset_mm_cache /is_sleeping /start_profile /stop_profile
    /v1/load_lora_adapter /v1/unload_lora_adapter /v1/pooling /v1/classify /v1/realtime /v1/files
    /v1/chat/completions/render /v1/chat /v1/completions/x /inference/v1/generate /generate
    /scale_elastic_ep /is_scaling_elastic_ep /pause /resume /update_weights /abort_requests
    /v2/rerank /load /version /server_info /openapi.json /docs /redoc /ping /v1 /v1/ / /v1/x"""


@pytest.mark.parametrize("headers", [{}, AUTH], ids=["no key", "key"])
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_routes_off_the_list(door: Door, method: str, headers: dict[str, str]) -> None:
    """B38: a 404 in JSON, with a key or without; the engine hears nothing."""
    body = b"{}" if method == "POST" else b""
    for path in UNLISTED.split():
        for target in (path, f"{path}?x=/v1/models"):
            reply = once(door.port, method, target, headers, body)
            assert (reply.status, in_json(reply)) == (404, "not_found"), target
    assert not asked(door)


def asked(door: Door) -> set[str]:
    """What the engine heard besides our probes of it."""
    probes = {"/health", "/v1/models", "/version"}
    return {one.target for one in door.engine.log} - probes


PATHS = r"""/v1/../metrics /v1/%2e%2e/metrics /v1/..%2fmetrics /v1/%252e%252e/metrics
    /v1/%2e%2e%2fmetrics /v1/.%2e/metrics /v1/./chat/completions /v1/chat/./completions
    /v1//chat/completions /v1/chat//completions /v1/chat/completions/ //v1/models
    /v1/chat/completions/. /V1/models /v1/Models
    /v1/CHAT/completions /v1/models%00 /v1/models%00.json /v1/models;x
    /v1/chat/completions;x=1 /v1;x/chat/completions /v1\metrics /v1/..\metrics /v1/%5cmetrics
    /v1/%5c..%5cmetrics /v1/chat%2fcompletions /v1/chat%2Fcompletions /v1%2fmodels /%2e%2e/metrics
    /v1/%c0%ae%c0%ae/metrics /v1/%u002e%u002e/metrics /v1/..;/metrics /v1/x/%2e%2e/%2e%2e/metrics
    /v1/models/../../metrics /v1/models/%2e%2e/%2e%2e/metrics /v1/models/x/../../../sleep
    /v1/chat/completions%20 /v1/chat/completions%0a /v1/chat/completions%0d%0aX:%20y
    /v1/chat/completions%3fx /v1/chat/completions%23 /v1/%2f/sleep /v1/%%32%65%%32%65/metrics
    http://vllm:8000/metrics http://vllm:8000/sleep http://vllm:8000//v1/models
    http://vllm:8000/v1/../sleep https://vllm:8000/tokenize http://a:b@vllm:8000/metrics""".split()  # noqa: SIM905 - as a list it would fill a page


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_paths_that_two_would_read_differently(door: Door, method: str) -> None:
    """B39: nothing but a 4xx in JSON, and the engine hears nothing. Behind nginx the gateway has
    metrics of its own, which a host in the target does not turn into another's.
    """
    for path in PATHS:
        reply = once(door.port, method, path, AUTH, b"{}" if method == "POST" else b"")
        own = door.name == "gateway" and method == "GET" and path.endswith("vllm:8000/metrics")
        assert own or reply.status in {400, 404, 405}, (path, reply.status)
        assert own or in_json(reply)
    assert not asked(door)


@pytest.mark.parametrize("target", ["*", "vllm:8000", "", "v1/models", "?x", "/v1/\xff", "/v1/a b"])
@pytest.mark.parametrize("method", ["OPTIONS", "GET", "CONNECT"])
def test_targets_of_other_forms(door: Door, method: str, target: str) -> None:
    """B39: no route, no 500, no other host."""
    line = f"{method} {target} HTTP/1.1\r\nhost: x\r\n".encode("latin-1")
    reply = door.raw(line + b"authorization: " + GOOD + b"\r\nconnection: close\r\n\r\n")
    assert 400 <= reply.status < 500, reply
    in_json(reply)
    assert not asked(door)


def test_an_absolute_target_of_ours_is_ours(door: Door) -> None:
    """B39: the host in it chooses nothing."""
    reply = once(door.port, "POST", f"http://vllm:8000{CHAT}", AUTH, b"{}")
    assert reply.status in {200, 404}
    assert asked(door) <= {CHAT}
    assert {one.header("host") for one in door.engine.requests} <= {
        f"127.0.0.1:{door.engine.port}".encode()
    }


def authorized(door: Door, *lines: bytes) -> Reply:
    fields = b"".join(line + b"\r\n" for line in lines)
    head = b"POST %b HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n" % CHAT.encode()
    return door.raw(head + fields + b"\r\n{}")


A = b"authorization: "
BAD = A + b"Bearer wrong-0123456789abcdef"
REFUSED = {
    "none": [],
    "latin-1": [A + b"Bearer caf\xe9"],
    "not utf-8": [A + b"Bearer " + bytes(range(0x80, 0xA0))],
    "curly quotes": [A + b"Bearer \xe2\x80\x9c" + KEY.encode() + b"\xe2\x80\x9d"],
    "straight quotes": [A + b'Bearer "' + KEY.encode() + b'"'],
    "scheme alone": [A + b"Bearer"],
    "scheme and space": [A + b"Bearer "],
    "empty": [A],
    "no space": [A + b"Bearer" + KEY.encode()],
    "no scheme": [A + KEY.encode()],
    "basic": [A + b"Basic " + base64.b64encode(b"x:" + KEY.encode())],
    "token": [A + b"Token " + KEY.encode()],
    "more after it": [A + GOOD + b" extra"],
    "a comma": [A + GOOD + b","],
    "twice in one": [A + GOOD + b", " + GOOD],
    "bad and good": [BAD, A + GOOD],
    "good and bad": [A + GOOD, BAD],
    "good and good": [A + GOOD, A + GOOD],
    "good and empty": [A + GOOD, A],
    "one letter less": [A + GOOD[:-1]],
    "one letter more": [A + GOOD + b"x"],
    "other case": [A + b"Bearer " + KEY.upper().encode()],
    "a tab inside": [A + b"Bearer\t" + KEY.encode()],
    "hexadecimal digest": [A + b"Bearer " + b"a" * 64],
    "in a cookie": [b"cookie: api_key=" + KEY.encode()],
    "in a header of its own": [b"api-key: " + KEY.encode()],
    "for a proxy": [b"proxy-authorization: " + GOOD],
}


@pytest.mark.parametrize("name", REFUSED)
def test_keys_that_are_none(door: Door, name: str) -> None:
    """B41: 401 in JSON with WWW-Authenticate; nginx may refuse two such headers itself."""
    reply = authorized(door, *REFUSED[name])
    assert reply.status == 401 or (door.name == "nginx" and reply.status == 400), reply
    in_json(reply)
    assert reply.status == 400 or reply.header("www-authenticate") == "Bearer"
    assert not door.engine.requests


def test_a_key_of_20_kib(door: Door) -> None:
    """B41: nginx has a smaller bound for a header."""
    reply = authorized(door, A + b"Bearer " + b"a" * 20_480)
    assert (reply.status, in_json(reply)) in {(401, "invalid_api_key"), (431, "headers_too_large")}


@pytest.mark.parametrize("value", [b"bearer " + GOOD[7:], b"BEARER " + GOOD[7:], b"  " + GOOD])
def test_a_key_that_is_one(door: Door, value: bytes) -> None:
    """B41: the scheme has no case, and blanks before a field's value are not part of it."""
    assert authorized(door, b"Authorization:" + value).status == 200


@pytest.mark.parametrize("blank", [b" ", b"\t", b" \t "])
def test_a_blank_behind_a_key(door: Door, blank: bytes) -> None:
    """B41: a parser may strip it or not; never an error of ours."""
    assert authorized(door, A + GOOD + blank).status in {200, 401}


def test_a_key_in_the_query_is_none(door: Door) -> None:
    for name in ("api_key", "key", "token", "access_token", "Authorization"):
        assert once(door.port, "POST", f"{CHAT}?{name}={KEY}", {}, b"{}").status == 401


def test_claims_about_the_client(door: Door) -> None:
    """B42: the log has the socket's peer, whatever a client says of itself; no claim matters."""
    for number in range(20):
        claims = {
            "X-Forwarded-For": f"10.0.0.{number}, 192.0.2.1",
            "X-Real-IP": f"10.0.0.{number}",
            "Forwarded": f"for=10.0.0.{number};proto=https;host=evil",
            "X-Forwarded-Proto": "https",
            "X-Forwarded-Host": "evil.example",
        }
        reply = door.ask(body=b"{}", **claims)
        assert reply.status == 200
        assert "10.0.0." not in str(door.line(reply))
        assert "evil" not in str(door.received.headers)
    if door.name == "nginx":
        mine = {str(one["client"]) for one in door.front.access_log()}
        assert mine == {"127.0.0.1"}


def test_claims_are_no_way_around_a_limit(tmp_path: Path) -> None:
    """B42: five requests a minute are five, whoever a client says that it is, at either door."""
    keys = f'[[key]]\nname = "few"\nkey = "{KEY}"\nrequests_per_minute = 5\n'
    with running(tmp_path, keys) as row:
        replies = []
        for number in range(20):
            address = f"10.0.{number}.1"
            claims = {
                "X-Forwarded-For": address,
                "X-Real-IP": address,
                "Forwarded": f"for={address}",
            }
            door = row.door("nginx" if number % 2 else "gateway")
            replies.append(door.ask(body=b"{}", **claims))
        assert len(row.engine.requests) == 5
    assert [reply.status for reply in replies] == [200] * 5 + [429] * 15
    for reply in replies[5:]:
        assert in_json(reply) == "rate_limit_exceeded"
        assert 0 < int(reply.header("retry-after") or 0) <= 60
    for reply in replies:
        assert reply.header("x-ratelimit-limit-requests") == "5"
    left = [int(reply.header("x-ratelimit-remaining-requests") or -1) for reply in replies[:5]]
    assert left == [4, 3, 2, 1, 0]


T = b"transfer-encoding: "
L = b"content-length: "
HELLO = b"\r\n5\r\nhello\r\n0\r\n\r\n"
AMBIGUOUS = {
    "chunk ended by XX": T + b"chunked\r\n\r\n5\r\nhelloXX0\r\n\r\n",
    "chunk longer than said": T + b"chunked\r\n\r\n4\r\nhello\r\n0\r\n\r\n",
    "length and chunked": L + b"5\r\n" + T + b"chunked\r\n\r\n0\r\n\r\n",
    "chunked and length": T + b"chunked\r\n" + L + b"5\r\n\r\n0\r\n\r\n",
    "two lengths": L + b"2\r\n" + L + b"3\r\n\r\n{}",
    "a list of lengths": L + b"2, 3\r\n\r\n{}",
    "plus": L + b"+5\r\n\r\nhello",
    "minus": L + b"-5\r\n\r\nhello",
    "a length in hex": L + b"0x5\r\n\r\nhello",
    "a length with a blank": L + b"5 5\r\n\r\nhello",
    "a length with a dot": L + b"5.0\r\n\r\nhello",
    "an empty length": L + b"\r\n\r\nhello",
    "a length of letters": L + b"five\r\n\r\nhello",
    "an endless length": L + b"18446744073709551617\r\n\r\nhello",
    "xchunked": T + b"xchunked\r\n" + HELLO,
    "chunkedx": T + b"chunkedx\r\n" + HELLO,
    "vertical tab": T + b"\x0bchunked\r\n" + HELLO,
    "form feed behind": T + b"chunked\x0c\r\n" + HELLO,
    "in quotes": T + b'"chunked"\r\n' + HELLO,
    "identity": T + b"identity\r\n" + HELLO,
    "chunked twice": T + b"chunked, chunked\r\n" + HELLO,
    "not last": T + b"chunked, identity\r\n" + HELLO,
    "two codings, two lines": T + b"chunked\r\n" + T + b"identity\r\n" + HELLO,
    "size 0x5": T + b"chunked\r\n\r\n0x5\r\nhello\r\n0\r\n\r\n",
    "size +5": T + b"chunked\r\n\r\n+5\r\nhello\r\n0\r\n\r\n",
    "size -5": T + b"chunked\r\n\r\n-5\r\nhello\r\n0\r\n\r\n",
    "size 5_0": T + b"chunked\r\n\r\n5_0\r\nhello\r\n0\r\n\r\n",
    "an empty size": T + b"chunked\r\n\r\n\r\nhello\r\n0\r\n\r\n",
    "an overflowing size": T + b"chunked\r\n\r\nfffffffffffffffff5\r\nhello\r\n0\r\n\r\n",
    "blank before the colon": b"transfer-encoding : chunked\r\n" + HELLO,
    "length with a blank before the colon": b"content-length : 5\r\n\r\nhello",
    "a folded line": b"x: a\r\n b\r\n" + L + b"2\r\n\r\n{}",
    "a folded coding": b"transfer-encoding:\r\n chunked\r\n" + HELLO,
    "CR in a value": b"x: a\rb\r\n" + L + b"2\r\n\r\n{}",
    "NUL in a value": b"x: a\x00b\r\n" + L + b"2\r\n\r\n{}",
    "NUL in a name": b"x\x00y: a\r\n" + L + b"2\r\n\r\n{}",
    "no name": b": a\r\n" + L + b"2\r\n\r\n{}",
    "a blank in a name": b"x y: a\r\n" + L + b"2\r\n\r\n{}",
}


@pytest.mark.parametrize("name", AMBIGUOUS)
def test_ambiguous_requests(door: Door, name: str) -> None:
    """B45: exactly one 400 and a close; what is pipelined behind it is not a request."""
    head = b"POST %b HTTP/1.1\r\nHost: x\r\nAuthorization: %b\r\n" % (CHAT.encode(), GOOD)
    with door.client() as client:
        client.send(head + AMBIGUOUS[name] + PIPELINED)
        reply = client.read_body(client.read_head())
        assert (reply.status, in_json(reply)) == (400, "invalid_request")
        assert client.at_end(), "more than one answer, or the connection stayed open"
    wait_until(partial(door.idle))
    assert not door.engine.requests


def test_requests_one_behind_the_other(door: Door) -> None:
    """B45, the other way round: what is not ambiguous is answered in order on one connection."""
    bodies = [b'{"a":1}', b'{"stream":true}', b"{}"]
    with door.client() as client:
        client.send(b"".join(build("POST", CHAT, AUTH, body) for body in bodies))
        replies = [client.read_body(client.read_head()) for _ in bodies]
    assert [reply.status for reply in replies] == [200] * 3
    assert [one.body for one in door.engine.requests][::2] == bodies[::2]
