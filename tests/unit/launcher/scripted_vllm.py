"""A program in vLLM's place: a package `vllm` whose API server does what SCRIPT says, or the file
`script` of the model's folder, on the launcher's own arguments. It has a worker of its own, as vLLM
has an EngineCore. As `serves` it answers chats, streamed or not, and counts what runs."""

from __future__ import annotations

from pathlib import Path

API_SERVER = """
import http.server, json, os, signal, subprocess, sys, threading, time
from pathlib import Path

from graphproof import counts, report
from graphproof.report import WorkerReport

model = Path(sys.argv[sys.argv.index("--model") + 1])
own = model / "script"
MODE = own.read_text().strip() if own.exists() else os.environ["SCRIPT"]
SERVING = ("serves", "wrong town")
at = sys.argv.index("--served-model-name") + 1
names = [word for word in sys.argv[at:at + 2]]
worker = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"])
with open(os.environ["PIDS"], "w") as file:
    file.write(f"{os.getpid()} {worker.pid}")
print("(EngineCore pid=1) INFO 11-30 22:27:54 [core.py:114] Initializing a V1 LLM engine (v0.24.0) "
      "with config: x", flush=True)
print("(Worker pid=2) INFO 11-30 22:28:12 [x.py:1] Starting to load model x...", flush=True)
port = int(sys.argv[sys.argv.index("--port") + 1])

if MODE == "exit0":
    worker.kill()
    sys.exit(0)
if MODE == "trace":
    sys.stderr.write(open(os.environ["TRACE"]).read())
    sys.exit(1)
if MODE == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
if MODE == "loading":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    time.sleep(300)

print("(Worker pid=2) INFO 11-30 22:28:20 [b.py:393] Compiling a graph for compile range (1, 8192) "
      "takes 7.34 s", flush=True)
folder = os.environ.get("ENGINE_PROOF_DIR")
for text in json.loads(os.environ.get("REPORTS", "[]")) if folder else []:
    report.write(Path(folder), WorkerReport.from_json(text))
if MODE == "refuses":
    print("(Worker pid=2) INFO 11-30 22:28:31 [vllm.py:1180] Cudagraph mode FULL_AND_PIECEWISE is "
          "not compatible with compilation mode 0.Overriding to NONE.", flush=True)
    print("(Worker pid=2) ERROR 11-30 22:28:32 [x.py:9] RuntimeError: CUDA graphs: nothing was "
          "captured; fix: see the log", flush=True)
    worker.kill()
    sys.exit(1)

print("(Worker pid=2) INFO 11-30 22:28:30 [m.py:53] torch.compile took 17 s in total", flush=True)
print("GPU KV cache size: 1,930,480 tokens", flush=True)


TOWN = "London" if MODE == "wrong town" else "Paris"
chats, stopping, made = set(), [], []


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/v1/models":
            return self.answer(200, {"data": [{"id": name, "object": "model"} for name in names]})
        idle = os.path.exists(os.environ["PIDS"] + ".idle")
        running, waiting = (len(chats), 0) if MODE in SERVING else (0, 0) if idle else (3, 1)
        body = b"" if self.path == "/health" else (
            b'vllm:num_requests_running{engine="0"} %d.0\\n' % running +
            b'vllm:num_requests_waiting{engine="0"} %d.0\\n' % waiting +
            b'vllm:kv_cache_usage_perc{engine="0"} 0.25\\n'
            b'vllm:prompt_tokens_total{engine="0"} 37.0\\n'
            b'vllm:generation_tokens_total{engine="0"} %d.0\\n' % (8 + sum(made)))
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/v1/chat/completions":
            return self.chat(asked)
        usual = '[200, {"usage": {"completion_tokens": 4}}]'
        status, body = json.loads(os.environ.get("CANARY", usual))
        if status == 0:
            return  # the connection closes without an answer
        self.answer(status, body)

    def chat(self, asked):
        if stopping:
            return self.answer(503, {"error": {"message": "stopping"}})
        chats.add(self)
        try:
            made.append(2)
            if asked.get("stream"):
                self.send_response(200)
                self.send_header("Content-Type", "text/event-stream")
                self.end_headers()
                for text in (TOWN, " it", " is", "."):
                    self.event({"choices": [{"index": 0, "delta": {"content": text}}]})
                    time.sleep(0.05)
                self.event({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
                self.wfile.write(b"data: [DONE]\\n\\n")
            else:
                time.sleep(0.1)
                message = {"role": "assistant", "content": TOWN}
                self.answer(200, {"choices": [{"message": message, "finish_reason": "stop"}],
                                  "model": names[0], "usage": {"completion_tokens": 2}})
        finally:
            chats.discard(self)

    def event(self, piece):
        piece = {"id": "x", "object": "chat.completion.chunk", "model": names[0], **piece}
        self.wfile.write(b"data: " + json.dumps(piece).encode() + b"\\n\\n")
        self.wfile.flush()

    def answer(self, status, body):
        body = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()


def stop(*_):
    print("stopping", flush=True)
    stopping.append(True)
    time.sleep(0.3 if MODE in SERVING else 0)  # as vLLM's teardown: what comes now is refused
    if MODE == "stubborn":
        return
    if MODE == "drains":
        time.sleep(1)
    worker.kill()
    os._exit(0)


stepped = counts.create(counts.path_of(Path(folder), 0, 0)) if folder else None
signal.signal(signal.SIGTERM, stop)
signal.signal(signal.SIGINT, stop)
while True:
    time.sleep(0.1)
    if os.path.exists(os.environ["PIDS"] + ".steps"):
        # 200 decode steps with a graph, 50 of 600 tokens without one
        for at, number in ((0, 200), (2, 50), (6, 200), (8, 30000), (12, 600)):
            stepped[at] = number
    if MODE == "dies later" and os.path.exists(os.environ["PIDS"] + ".die"):
        print("(EngineCore pid=7) ERROR 11-30 22:30:00 [core.py:9] RuntimeError: CUDA error: an "
              "illegal memory access was encountered", flush=True)
        os._exit(0)
"""


def install(site: Path) -> None:
    """Write the package `vllm` below `site`."""
    folder = site / "vllm/entrypoints/openai"
    folder.mkdir(parents=True)
    for package in (folder, folder.parent, folder.parent.parent):
        (package / "__init__.py").touch()
    (folder / "api_server.py").write_text(API_SERVER)
