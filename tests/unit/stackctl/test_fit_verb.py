"""`fit` as a verb, and as what `up` asks before it builds or downloads anything."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from common.checkout import Checkout
from stackctl import config, fit
from stackctl.console import Console
from stackctl.doctor import facts
from stackctl.errors import StackError
from stackctl.layout import Layout
from unit.fit import models

Fake = Callable[..., None]
TOKEN = "hf_thisisatoken"


class Answers(BaseHTTPRequestHandler):
    """A hub: an 8B model, one of 140 GB, a gated one; nothing else."""

    def do_GET(self) -> None:
        known = {"small/model": 16_060_000_000, "large/model": 141_000_000_000}
        if "gated/model" in self.path:
            allowed = self.headers.get("Authorization") == f"Bearer {TOKEN}"
            self._send(*(self._model(16_060_000_000) if allowed else (401, {})))
            return
        found = next((size for name, size in known.items() if name in self.path), None)
        self._send(*(self._model(found) if found else (404, {})))

    def _model(self, size: int) -> tuple[int, dict[str, Any]]:
        if self.path.endswith("/config.json"):
            return 200, models.LLAMA_70B if "large" in self.path else models.LLAMA_8B
        return 200, {"siblings": [{"rfilename": "model.safetensors", "size": size}]}

    def _send(self, status: int, value: dict[str, Any]) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Quiet."""


@pytest.fixture
def hub() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("small/model", "--gpu", "h200"), 0, "fits: "),
        (("large/model", "--gpu", "24GB"), 1, "does not fit: "),
        (("no/model", "--gpu", "h200"), 2, "no such model or revision"),
        (("--gpu", "h200"), 2, "required: MODEL"),
        (("small/model", "--gpu", "nonsense"), 2, "--gpu: found 'nonsense'"),
    ],
)
def test_the_programs_words_and_exit_status(
    checkout: Checkout, hub: str, words: tuple[str, ...], code: int, told: str
) -> None:
    done = checkout.stack("fit", *words, env={"HF_ENDPOINT": hub})
    assert done.returncode == code, done.stderr
    assert told in done.stdout + done.stderr


def test_settings_and_token_reach_it_and_json_comes_back(checkout: Checkout, hub: str) -> None:
    checkout.set_env(HF_ENDPOINT=hub, MAX_MODEL_LEN="4096")
    words = ("fit", "gated/model", "--gpu", "h200", "--json")
    assert checkout.stack(*words).returncode == 2
    token = checkout.root / "secrets" / "hf_token"
    token.chmod(0o644)
    token.write_text(TOKEN)
    done = checkout.stack(*words)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found.keys() >= {
        "fits", "weights_bytes", "kv_bytes_per_token", "kv_cache_tokens", "max_context",
        "max_concurrency", "reason", "plans",
    }  # fmt: skip
    assert found["context"] == 4096  # of .env
    assert TOKEN not in done.stdout + done.stderr


def test_without_a_network(checkout: Checkout) -> None:
    done = checkout.stack("fit", "a/b", "--gpu", "h200", env={"HF_ENDPOINT": "http://127.0.0.1:9"})
    assert done.returncode == 3
    assert done.stderr.count("\n") == 1


def test_a_folder_of_the_containers(checkout: Checkout) -> None:
    folder = checkout.root / ".run" / "models" / "mine"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(models.LLAMA_8B))
    assert checkout.stack("fit", "/models/mine", "--gpu", "h200").returncode == 0


@pytest.fixture
def gpu(checkout: Checkout, fake: Fake, hub: str, container_toolkit: None) -> Checkout:
    """A host with one GPU of 24 GB, and a Docker engine that can build nothing."""
    fake(
        "nvidia-smi",
        [
            (["--query-gpu=index,name"], 0, "0, NVIDIA GeForce RTX 4090\n", ""),
            (
                ["--query-gpu=name,memory.total,mig.mode.current"],
                0,
                "NVIDIA GeForce RTX 4090, 24564, [N/A]\n",
                "",
            ),
            (["--query-gpu=memory.total"], 0, "24564\n", ""),
        ],
    )
    fake(
        "docker",
        [
            (["version"], 0, "28.2.2\n", ""),
            (["compose", "version"], 0, "2.40.3\n", ""),
            (["compose", "ps"], 0, "", ""),
            (["info"], 1, "", ""),
            (["compose", "--progress"], 1, "", "the build began\n"),
        ],
    )
    checkout.set_env(HF_ENDPOINT=hub, STACK_MODE="gpu", NGINX_PORT="18131")
    (checkout.root / ".run" / "mode").write_text("gpu\n")  # not the first run: less disk is needed
    return checkout


def up(checkout: Checkout, **env: str) -> tuple[int, str, str]:
    done = checkout.stack("up", env=env)
    return done.returncode, done.stdout, done.stderr


def built(checkout: Checkout) -> bool:
    return "compose --progress" in (checkout.home / "docker.calls").read_text()


def test_what_does_not_fit_is_one_line_and_nothing_is_pulled(gpu: Checkout) -> None:
    code, _, err = up(gpu, MODEL="large/model")
    assert code == 1
    assert err.count("\n") == 1
    assert "; fix: " in err
    assert "; it fits gpu-h100x8-640gb" in err
    assert not built(gpu)


def test_what_fits_is_said_and_asked_once(gpu: Checkout) -> None:
    settings = {"MODEL": "small/model", "MAX_MODEL_LEN": "4096"}
    _, out, err = up(gpu, **settings)
    assert "  fits: " in out
    assert "the build began" in err
    _, out, _ = up(gpu, **settings)
    assert "fits" not in out
    _, out, _ = up(gpu, **{**settings, "MAX_MODEL_LEN": "2048"})
    assert "  fits: " in out


def test_auto_is_chosen_to_fit(gpu: Checkout) -> None:
    _, out, _ = up(gpu)
    assert "fit" not in out
    assert built(gpu)


@pytest.mark.parametrize("endpoint", ["http://127.0.0.1:9", ""])
def test_what_cannot_be_told_is_a_note(gpu: Checkout, endpoint: str) -> None:
    env = {"HF_ENDPOINT": endpoint} if endpoint else {}
    _, out, _ = up(gpu, MODEL="no/model", **env)
    assert "  note: whether the model fits is not known: " in out
    assert built(gpu)


def test_a_model_that_is_not_on_the_hub_ends_a_first_start(gpu: Checkout) -> None:
    layout = Layout(gpu.root)
    layout.mode_file.write_text("gpu (starting)\n")
    settings = config.read(layout, gpu.env({"MODEL": "no/model"}))
    question = fit.Question(layout, settings, "gpu", facts.read_host())
    with pytest.raises(StackError, match=r"^MODEL: no/model: found no such model or revision"):
        question.ask(Console(io.StringIO()))


def test_on_a_cpu_memory_is_judged_whatever_gpu_is_there(gpu: Checkout) -> None:
    (gpu.root / ".run" / "mode").write_text("cpu\n")
    code, _, err = up(gpu, MODEL="large/model", STACK_MODE="cpu")
    assert code == 1
    assert "of memory; wanted" in err
    assert not built(gpu)


def model_check(checkout: Checkout, **settings: str) -> dict[str, str]:
    """What `doctor --json` says of the model."""
    checkout.set_env(**settings)
    done = checkout.stack("doctor", "--json")
    assert TOKEN not in done.stdout + done.stderr
    checks = json.loads(done.stdout)["checks"]
    (found,) = (check for check in checks if check["name"] == "model")
    told: dict[str, str] = found
    return told


def test_doctor_asks_the_hub_with_the_token(gpu: Checkout, hub: str) -> None:
    refused = model_check(gpu, MODEL="gated/model", HF_ENDPOINT=hub)
    assert refused["status"] == "fail"
    assert "gated" in refused["found"]
    assert "secrets/hf_token" in refused["fix"]
    token = gpu.root / "secrets" / "hf_token"
    token.chmod(0o644)
    token.write_text(TOKEN)
    found = model_check(gpu, MAX_MODEL_LEN="4096")
    assert (found["status"], found["fix"]) == ("ok", ""), found
    assert "gated/model fits: " in found["found"]


def test_doctor_warns_of_a_hub_that_is_out_of_reach(gpu: Checkout) -> None:
    found = model_check(gpu, MODEL="small/model", HF_ENDPOINT="http://127.0.0.1:9")
    assert found["status"] == "warn"
    assert "no answer from http://127.0.0.1:9" in found["found"]
    assert "HF_ENDPOINT" in found["fix"]


def test_doctor_asks_for_what_auto_would_take(gpu: Checkout, hub: str) -> None:
    found = model_check(gpu, MODEL="auto", HF_ENDPOINT=hub)
    assert found["status"] == "fail"  # this hub has no such model
    assert "Qwen/Qwen2.5-7B-Instruct" in found["found"]
