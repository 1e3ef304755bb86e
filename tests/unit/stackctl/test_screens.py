"""What people read: status, the chat stream, progress, log tails."""

import io
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from stackctl import chat, config, lifecycle, local, ports, reasons, status, wait
from stackctl.console import Console
from stackctl.errors import StackError
from stackctl.layout import Layout

NOBODY = "http://127.0.0.1:9"  # the discard port: nothing listens


def test_status_of_nothing_has_all_keys() -> None:
    report = status.gather(NOBODY, "local", {"vllm": "stopped"})
    assert report["phase"] == "stopped"
    assert report["ready"] is False
    assert report["kv_cache"] == {"tokens": None, "usage": None}
    assert report["graphs"]["verdict"] == "unknown"
    assert set(status.STABLE) <= set(report)
    lines = status.screen(report, 0.0)
    assert "phase     stopped" in lines[2]
    assert status.rate(NOBODY, report) == 0.0


def test_screen_of_a_running_stack() -> None:
    report = {
        "mode": "gpu", "url": "u", "phase": "ready", "message": "", "model": "M",
        "served_model_names": ["M", "default"], "engine_version": "0.33.0", "running": 3,
        "graphs": {"verdict": "in force", "reason": ""}, "waiting": 0,
        "kv_cache": {"tokens": 908560, "usage": 0.254}, "services": {"vllm": "running"},
    }  # fmt: skip
    text = "\n".join(status.screen(report, 209.5))
    for words in ("25.4 % of 908,560 tokens", "3 running, 0 waiting", "tokens/s  210", "in force"):
        assert words in text


FULL = {
    "mode": "gpu", "url": "u", "phase": "ready", "message": "", "model": "M", "running": 3,
    "served_model_names": ["M", "default"], "engine_version": "0.33.0", "waiting": 0,
    "services": {"vllm": "running"}, "debug": False, "api_servers": 4,
    "start": {"seconds": 92.4, "compile_cache": "cold"},
    "kv_cache": {
        "tokens": 908560, "usage": 0.254, "predicted_tokens": 915000, "difference": 0.0071,
    },
    "graphs": {
        "verdict": "partly", "reason": "PIECEWISE alone", "fix": "another backend",
        "decode_without_graph": {
            "steps_share": 0.0123, "tokens_share": 0.2, "largest_batch_tokens": 1640,
        },
    },
}  # fmt: skip


def test_screen_of_an_engine_that_tells_all() -> None:
    lines = status.screen(FULL, 0.0)
    assert "engine    vLLM 0.33.0, 4 API servers" in lines
    assert "start     92 s, compile cache cold" in lines
    assert "kv cache  25.4 % of 908,560 tokens, predicted 915,000 (+0.7 %)" in lines
    assert (
        "graphs    partly (PIECEWISE alone); fix: another backend; 1.2 % of decode steps without"
        " a graph (20.0 % of their tokens, the largest with 1,640 tokens)"
    ) in lines
    assert not any("DEBUG" in line for line in lines)


def test_debug_is_the_first_line() -> None:
    first = status.screen({**FULL, "debug": True}, 0.0)[0]
    assert first.startswith("DEBUG     eager")
    assert first.endswith("slow on purpose; end it with make up")


@pytest.mark.parametrize(
    ("share", "words"),
    [
        (None, ""),
        ({"steps_share": None, "tokens_share": None, "largest_batch_tokens": None}, ""),
        ({"steps_share": 0.0, "tokens_share": 0.0, "largest_batch_tokens": None}, ""),
        ({"steps_share": 0.00002}, "; under 0.1 % of decode steps without a graph"),
    ],
)
def test_graphs_that_all_decode_steps_had(share: object, words: str) -> None:
    told = {"verdict": "in force", "reason": "", "decode_without_graph": share}
    assert status.graphs({"graphs": told}) == f"in force{words}"


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({"tokens": None, "usage": None}, ""),
        ({"tokens": 1000}, "1,000 tokens"),
        ({"tokens": 1000, "predicted_tokens": None, "difference": None}, "1,000 tokens"),
        ({"tokens": 1000, "predicted_tokens": 960, "difference": -0.04},
         "1,000 tokens, predicted 960 (-4.0 %)"),
    ],
)  # fmt: skip
def test_kv_cache_as_far_as_it_is_known(told: object, words: str) -> None:
    assert status.kv_tokens({"kv_cache": told}) == words


def test_an_older_launcher_leaves_lines_out() -> None:
    assert status.start({"start": None}) == status.start({}) == ""
    assert status.start({"start": {"seconds": 4.6, "compile_cache": None}}) == "5 s"
    report = status.gather(NOBODY, "gpu", {})
    assert [report[name] for name in status.MORE] == [None, None, None]


def test_chat_stream() -> None:
    lines = [
        ": heartbeat", "", 'data: {"choices":[{"delta":{"role":"assistant"}}]}',
        'data: {"choices":[{"delta":{"content":"Par"}}]}',
        'data: {"choices":[{"delta":{"content":"is"}}]}', 'data: {"choices":[]}',
        "data: [DONE]", "data: not read any more",
    ]  # fmt: skip
    assert "".join(chat.deltas(lines)) == "Paris"
    with pytest.raises(StackError, match="engine died"):
        list(chat.deltas(['data: {"error": {"message": "engine died"}}']))


def test_chat_without_a_stack() -> None:
    nobody = chat.Chat(NOBODY, None, {})
    with pytest.raises(StackError, match="fix: make up"):
        chat.answer(nobody, [{"role": "user", "content": "hi"}], Console(io.StringIO()))


def test_ready_is_the_new_engines_word() -> None:
    answer = {"ready": True, "engines": [{"started": 100.0}]}
    assert wait.is_ready(answer, 0)
    assert wait.is_ready(answer, 100.9)
    assert not wait.is_ready(answer, 102)
    assert not wait.is_ready({"ready": False, "engines": []}, 0)
    assert not wait.is_ready({"message": "refused"}, 0)


def test_waiting_ends_with_the_reason_or_the_time() -> None:
    console = Console(io.StringIO())
    with pytest.raises(StackError, match="vllm stopped"):
        wait.until_ready(NOBODY, console, lambda: "vllm stopped", not_before=0, timeout_s=9)
    with pytest.raises(StackError, match="not ready after 1 s"):
        wait.until_ready(NOBODY, console, lambda: None, not_before=0, timeout_s=1)


def test_progress_without_a_terminal_is_a_line_a_step() -> None:
    out = io.StringIO()
    console = Console(out)
    for detail in ("1", "2", "3"):
        console.progress("loading", detail)
    console.progress("ready")
    console.line("done")
    assert out.getvalue() == "  loading 1\n  ready\ndone\n"
    assert "\x1b" not in out.getvalue()


def test_reason_of_a_log(tmp_path: Path) -> None:
    log = tmp_path / "vllm.log"
    log.write_text("x\n" * 50_000 + "engine: failed: out of memory\n\nbye\n")
    lines = local.tail(log, 5)
    assert lines[-1] == "bye"
    assert reasons.telling(lines) == "out of memory"
    assert reasons.telling(["a", "b"]) == "b"
    assert reasons.telling([]) == "(it said nothing)"
    assert local.tail(tmp_path / "none", 5) == []


def test_ctrl_c_ends_an_answer_and_not_the_chat(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[chat.Message]] = []

    def stopped(_: chat.Chat, history: list[chat.Message], __: Console) -> str:
        asked.append(history)
        if len(asked) == 1:
            raise KeyboardInterrupt
        return "Paris"

    typed = iter(["one", "/help", "two"])

    def read(_: str) -> str:
        text = next(typed, None)
        if text is None:
            raise EOFError
        return text

    monkeypatch.setattr(chat, "answer", stopped)
    monkeypatch.setattr("builtins.input", read)
    out = io.StringIO()
    chat.converse(chat.Chat(NOBODY, None, {}), Console(out))
    assert [[m["content"] for m in history] for history in asked] == [["one"], ["two"]]
    assert out.getvalue().count(chat.HELP) == 2


def test_a_stopped_stack_is_three_lines() -> None:
    report = status.gather(NOBODY, "local", {"nginx": "stopped"})
    assert report["phase"] == "stopped"
    assert status.screen(report, 0.0)[-1] == "phase     stopped; fix: make up"


class Ready(BaseHTTPRequestHandler):
    """A /status of a stack that serves."""

    def do_GET(self) -> None:
        body = b'{"phase": "ready", "ready": true, "message": ""}'
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def test_status_asks_the_port_that_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layout = Layout(tmp_path)
    layout.run.mkdir()
    layout.mode_file.write_text("local\n")
    layout.env_file.write_text("NGINX_PORT=9\n")
    settings = config.read(layout, {})
    monkeypatch.setattr(lifecycle.LocalStack, "services", lambda _: {"nginx": "running (pid 1)"})
    out = io.StringIO()
    with HTTPServer(("127.0.0.1", 0), Ready) as server:
        ports.record(layout, ports.Ports(server.server_port, 1, 2, 3))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        lifecycle.show_status(layout, settings, Console(out), as_json=False)
        server.shutdown()
    change = f"NGINX_PORT {server.server_port} -> 9"
    assert f"ready: .env differs from what runs ({change}); fix: make up" in out.getvalue()
    assert f"http://127.0.0.1:{server.server_port}" in out.getvalue()


@pytest.mark.parametrize(("seconds", "said"), [(0.0, ""), (1.3, "up to 7 s (GATEWAY_DRAIN_S)")])
def test_a_long_stop_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float, said: str
) -> None:
    layout = Layout(tmp_path)
    layout.run.mkdir()
    layout.mode_file.write_text("local\n")
    settings = config.read(layout, {"GATEWAY_DRAIN_S": "7"})
    monkeypatch.setattr(lifecycle.LocalStack, "stop", lambda _: time.sleep(seconds))
    out = io.StringIO()
    assert lifecycle.down(layout, settings, Console(out)) == 0
    assert said in out.getvalue()
    assert ("draining" in out.getvalue()) == bool(said)


def test_only_services_are_restarted(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    layout.run.mkdir()
    layout.mode_file.write_text("local\n")
    with pytest.raises(StackError, match="service 'model'"):
        lifecycle.restart(layout, config.read(layout, {}), Console(io.StringIO()), "model")
