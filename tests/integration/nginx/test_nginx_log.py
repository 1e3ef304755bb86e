"""The access log is JSON and tells what happened; no log has a key, a query string or a prompt."""

from pathlib import Path

from common.fake_vllm import FakeVLLM
from common.front import Front, replace
from common.rawhttp import Client, once
from common.script import Fin, Pause, Reset, Send, answer, head

CHAT = "/v1/chat/completions"
KEY = "sk-LEAKMARK-123"
PROMPT = {"model": "m", "messages": [{"role": "user", "content": "PROMPTMARK"}]}
HEADERS = {"Authorization": f"Bearer {KEY}", "X-Api-Key": KEY, "Cookie": KEY, "Referer": KEY}


def hurt(fake: FakeVLLM, front: Front) -> int:
    """Go through everything that makes nginx log. Returns the number of requests."""
    scripts = [answer(), answer(b"{}", 500), (Fin(),), (Reset(),), (Pause(20),)]
    scripts.append((Send(head(200, [("x", "bad\x01header"), ("content-length", "x")])),))
    for script in scripts:
        fake.enqueue(*script)
        once(front.port, "POST", f"{CHAT}?api_key={KEY}", HEADERS, PROMPT)
    for target in ("/metrics", "/v1/%00", "/nothing", "/v1/" + "x" * 17000):
        once(front.port, "GET", f"{target}?api_key={KEY}", HEADERS)
    once(front.port, "POST", f"{CHAT}?k={KEY}", {**HEADERS, "A": "x" * 17000}, PROMPT)
    once(front.port, "POST", f"{CHAT}?k={KEY}", {**HEADERS, "Content-Length": "9999999999"}, b"x")
    fake.stop_listening(reset=True)
    once(front.port, "POST", f"{CHAT}?api_key={KEY}", HEADERS, PROMPT)
    with Client(front.port) as client:
        client.send(f"GET /?{KEY} HTTP/1.1\r\nHost: {KEY}\r\nbad header: {KEY}\r\n\r\n".encode())
        client.read_head()
    return len(scripts) + 8


def test_no_secret_in_any_log(tmp_path: Path, fake: FakeVLLM) -> None:
    edits = {"server/proxy.conf": replace("proxy_read_timeout 28800s", "proxy_read_timeout 1s")}
    with Front(tmp_path, f"127.0.0.1:{fake.port}", edits=edits) as front:
        front.wait_for_log(hurt(fake, front))
    logs = (front.out / "access.log").read_text() + (front.out / "error.log").read_text()
    assert "MARK" not in logs
    assert "?" not in logs


def test_a_line_tells_what_happened(fake: FakeVLLM, front: Front) -> None:
    once(front.port, "POST", f"{CHAT}?a=b", {"X-Request-Id": "r1"}, PROMPT)
    line = front.wait_for_log(1)[0]
    assert {name: line[name] for name in ("request_id", "method", "path", "status")} == {
        "request_id": "r1",
        "method": "POST",
        "path": CHAT,
        "status": 200,
    }
    assert line["upstream"] == f"127.0.0.1:{fake.port}"
    assert line["upstream_status"] == "200"


def test_strange_bytes_stay_one_json_line(fake: FakeVLLM, front: Front) -> None:
    once(front.port, "GET", '/v1/a"b\\c', {"X-Request-Id": 'x"y'})
    with Client(front.port) as client:
        client.send(b"\x16\x03\x01\x02\x00\x01\r\n\r\n")
        client.read_head()
    once(front.port, "GET", "/v1/\xff\xe9")
    lines = front.wait_for_log(3)
    assert [line["path"] for line in lines][::2] == ['/v1/a"b\\c', "-"]
    assert [line["method"] for line in lines] == ["GET", "-", "GET"]


def test_a_client_that_left_is_499(fake: FakeVLLM, front: Front) -> None:
    fake.enqueue(Pause(20))
    with Client(front.port) as client:
        client.send(b"POST /v1/x HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}")
        fake.wait_until(lambda: fake.requests)
    assert front.wait_for_log(1)[0]["status"] == 499
