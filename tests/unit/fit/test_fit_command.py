"""`python -m fit` as a program: folders, a hub, GPUs by name or by nvidia-smi, exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import models
import pytest
from fit import gpus, source

ROOT = Path(__file__).parents[3]
TOKEN = "hf_thisisatoken"


class Answers(BaseHTTPRequestHandler):
    """A hub with models: open ones, gated ones, and one that is broken."""

    def do_GET(self) -> None:
        gated = "gated/model" in self.path
        if gated and self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self._send(401, b"{}")
        elif "params/model" in self.path and not self.path.endswith("/config.json"):
            self._send(200, json.dumps({"siblings": [{"rfilename": "params.json"}]}).encode())
        elif "open/model" in self.path or gated:
            self._send(200, self._content())
        elif "modelopt/model" in self.path:
            self._send(200, self._modelopt())
        elif "terms/model" in self.path:
            self._send(401, b"{}", "GatedRepo")
        elif "broken/model" in self.path:
            self._send(200, b"<html>")
        elif "down/model" in self.path:
            self._send(503, b"")
        else:
            self._send(404, b"{}")

    def _content(self) -> bytes:
        if self.path.endswith("/config.json"):
            return json.dumps(models.LLAMA_8B).encode()
        files = [
            {"rfilename": "model-00001-of-00002.safetensors", "size": 10_000_000_000},
            {"rfilename": "model-00002-of-00002.safetensors", "size": 6_060_000_000},
            {"rfilename": "original/consolidated.00.pth", "size": 16_060_000_000},
            {"rfilename": "config.json", "size": 700},
        ]
        return json.dumps({"sha": "1", "siblings": files}).encode()

    def _modelopt(self) -> bytes:
        """FP8 weights, whose form stands in a file of its own, and some tensors of 32 bits."""
        if self.path.endswith("/config.json"):
            return json.dumps(models.load("llama-3.1-70b-fp8")).encode()
        if self.path.endswith("/hf_quant_config.json"):
            return json.dumps(models.load("llama-3.1-70b-fp8.hf_quant_config")).encode()
        files = [
            {"rfilename": "model.safetensors", "size": 72_700_000_000},
            {"rfilename": "hf_quant_config.json", "size": 260},
        ]
        return json.dumps(
            {"siblings": files, "safetensors": {"parameters": {"F32": 1120}}}
        ).encode()

    def _send(self, status: int, body: bytes, code: str = "") -> None:
        self.send_response(status)
        if code:
            self.send_header("X-Error-Code", code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Quiet."""


@pytest.fixture
def hub() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "llama"
    made.mkdir()
    (made / "config.json").write_text(json.dumps(models.LLAMA_8B))
    return made


def run(*arguments: str, path: str = "", **environ: str) -> subprocess.CompletedProcess[str]:
    env = {"PATH": path or "/nonexistent", "PYTHONPATH": str(ROOT / "docker" / "engine"), **environ}
    return subprocess.run(
        [sys.executable, "-P", "-m", "fit", *arguments],
        env=env, capture_output=True, text=True, timeout=50, check=False,
    )  # fmt: skip


def told(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_folder_with_only_a_config(folder: Path) -> None:
    done = run(str(folder), "--gpu", "h200", "--context", "8K", "--json")
    found = told(done)
    assert done.returncode == 0
    assert found["weights_bytes"] == pytest.approx(16.06e9, rel=0.01)
    assert (found["weights_from"], found["context"], found["fits"]) == ("config", 8192, True)
    assert found["plans"][0]["slug"] == "gpu-6000adax1-48gb"  # 20 GB hold no 8,192 tokens beside it
    prices = [row["usd_per_hour"] for row in found["plans"]]
    assert prices == sorted(prices)
    keys = {"fits", "weights_bytes", "kv_bytes_per_token", "kv_cache_tokens", "max_context",
            "max_concurrency", "reason", "plans"}  # fmt: skip
    assert keys <= set(found)


def test_files_count_where_there_are_any(folder: Path) -> None:
    with (folder / "model.safetensors").open("wb") as sparse:
        sparse.truncate(5_500_000_000)
    found = told(run(str(folder), "--gpu", "l40s", "--context", "4096", "--json"))
    assert (found["weights_bytes"], found["weights_from"]) == (5_500_000_000, "files")


def test_what_does_not_fit_is_one_line_and_exit_1(folder: Path) -> None:
    (folder / "config.json").write_text(json.dumps(models.LLAMA_70B))
    done = run(str(folder), "--gpu", "24GB", "--context", "4096")
    assert done.returncode == 1
    last = done.stdout.splitlines()[-1]
    assert last.startswith("does not fit: found llama with 131.4 GiB of weights")


def test_settings_come_from_the_environment(folder: Path) -> None:
    done = run(
        str(folder), "--gpu", "h100x8", "--json", TENSOR_PARALLEL_SIZE="2", MAX_MODEL_LEN="16k",
        GPU_MEMORY_UTILIZATION="0.5", KV_CACHE_DTYPE="fp8",
    )  # fmt: skip
    found = told(done)
    assert (found["tensor_parallel_size"], found["context"]) == (2, 16000)
    assert found["gpu_memory_utilization"] == 0.5
    assert found["kv_bytes_per_token"] == 32768


def test_the_gpu_of_this_host_by_nvidia_smi(folder: Path, tmp_path: Path) -> None:
    smi = tmp_path / "bin" / "nvidia-smi"
    smi.parent.mkdir()
    smi.write_text('#!/bin/sh\necho "NVIDIA L40S, 46068"\n')
    smi.chmod(0o755)
    found = told(run(str(folder), "--context", "4096", "--json", path=f"{smi.parent}:/bin"))
    assert found["gpu"] == {"name": "NVIDIA L40S", "bytes": 46068 * 2**20, "count": 1}


def test_a_gpu_in_slices_is_not_taken_for_a_whole_one() -> None:
    lines = ("NVIDIA H200, 143771, Disabled", "NVIDIA H200, 143771, Enabled", "X, [N/A], [N/A]")
    found = gpus.parse("\n".join(lines))
    assert [(card.total, card.count) for card in found] == [(143771 * 2**20, 1)]
    assert gpus.parse("NVIDIA L4, 23034, [N/A]")[0].name == "NVIDIA L4"


def test_without_a_gpu_plans_are_judged(folder: Path) -> None:
    done = run(str(folder), "--context", "4096")
    assert done.returncode == 0
    assert "only plans are judged" in done.stdout
    assert run(str(folder), "--context", "4096", "--json").stdout.count('"gpu": null') == 1


def test_a_model_of_the_hub(hub: str) -> None:
    found = told(run("open/model", "--gpu", "h100", "--context", "8192", "--json", HF_ENDPOINT=hub))
    assert found["weights_bytes"] == 16_060_000_000
    assert found["model"] == "open/model"


def test_a_model_of_the_hub_whose_form_stands_beside_its_config(hub: str) -> None:
    found = told(run("modelopt/model", "--gpu", "h100x8", "--tp", "2", "--json", HF_ENDPOINT=hub))
    assert found["weights_bytes"] == 72_700_000_000
    assert found["kv_bytes_per_token"] == 81_920  # of each GPU; that checkpoint asks for FP8 itself
    assert found["fits"]


def test_float32_tensors_are_told_by_the_files_headers(folder: Path) -> None:
    header = {"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8_000_000_000]},
              "b": {"dtype": "BF16", "shape": [2], "data_offsets": [8_000_000_000, 9_000_000_000]},
              "__metadata__": {"format": "pt"}}  # fmt: skip
    text = json.dumps(header).encode()
    with (folder / "model.safetensors").open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(9_000_000_000)
    assert told(run(str(folder), "--gpu", "l40s", "--json"))["weights_bytes"] == 5_000_000_000


def test_flags_that_are_not_counted_are_named(folder: Path) -> None:
    extra = "--seed 1 --pipeline_parallel_size=2 -sc '{}' --dtype bfloat16"
    done = run(str(folder), "--gpu", "h100", "--context", "4096", "--json", VLLM_EXTRA_ARGS=extra)
    named = ["pipeline-parallel-size", "speculative-config"]
    assert told(done)["not_counted"] == named
    assert f"note: VLLM_EXTRA_ARGS has {', '.join(named)}, not counted here" in done.stderr


def test_a_gated_model_takes_the_token_of_the_file(hub: str, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(TOKEN + "\n")
    arguments = ("gated/model", "--gpu", "h100", "--context", "4096")
    refused = run(*arguments, HF_ENDPOINT=hub)
    assert refused.returncode == 2
    assert "wanted access; fix: " in refused.stderr
    done = run(*arguments, HF_ENDPOINT=hub, HF_TOKEN_PATH=str(file))
    assert done.returncode == 0
    assert TOKEN not in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("model", "code", "words"),
    [
        ("no/such", 2, "no such model or revision"),
        ("terms/model", 2, "a gated model whose terms are not accepted"),
        ("broken/model", 2, "no JSON; wanted the hub's API"),
        ("down/model", 3, "found status 503"),
        ("auto", 2, "found auto, which is chosen to fit"),
        ("two words", 2, "wanted auto, a Hugging Face id"),
        ("/nonexistent/folder", 2, "found no readable /nonexistent/folder/config.json"),
    ],
)
def test_models_that_cannot_be_read(hub: str, model: str, code: int, words: str) -> None:
    done = run(model, "--gpu", "h100", HF_ENDPOINT=hub)
    assert (done.returncode, done.stdout) == (code, "")
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_hub_that_is_not_there() -> None:
    done = run("open/model", "--gpu", "h100", HF_ENDPOINT="http://127.0.0.1:9")
    assert done.returncode == 3
    assert "found no answer from http://127.0.0.1:9" in done.stderr
    assert run("open/model", HF_ENDPOINT="ftp://x").returncode == 2


@pytest.mark.parametrize(
    "option",
    [
        ("--gpu", "a10g"), ("--gpu", ""), ("--tp", "0"), ("--context", "many"),
        ("--concurrency", "0"), ("--utilization", "1.5"), ("--max-num-seqs", "x"),
    ],
)  # fmt: skip
def test_options_that_mean_nothing(folder: Path, option: tuple[str, str]) -> None:
    done = run(str(folder), *option)
    assert done.returncode == 2
    assert "found" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "config",
    [
        {"hidden_size": 1},
        {"model_type": "whisper", "d_model": 1280, "encoder_layers": 32, "vocab_size": 51866},
        {"model_type": "mamba", "hidden_size": 2560, "num_hidden_layers": 64, "vocab_size": 50280},
    ],
)
def test_what_this_arithmetic_does_not_know_is_not_refused(
    folder: Path, config: dict[str, Any]
) -> None:
    (folder / "config.json").write_text(json.dumps(config))
    done = run(str(folder), "--gpu", "h100")
    assert done.returncode == 3
    assert "wanted a decoder with attention, whose memory can be told" in done.stderr


def test_a_folder_in_another_form_is_not_refused(tmp_path: Path) -> None:
    (tmp_path / "params.json").write_text("{}")
    assert run(str(tmp_path), "--gpu", "h100").returncode == 3
    assert run(str(tmp_path / "gone"), "--gpu", "h100").returncode == 2


def test_a_repository_in_another_form_is_not_refused(hub: str) -> None:
    done = run("params/model", "--gpu", "h100", HF_ENDPOINT=hub)
    assert done.returncode == 3
    assert "found no config.json in params/model" in done.stderr


GIB = 2**30
SHARDS = {f"model-0000{n}-of-00002.safetensors": 8 * GIB for n in (1, 2)}


@pytest.mark.parametrize("stray", ["merged.safetensors", "model.safetensors"])
def test_files_that_the_index_does_not_name_do_not_count(folder: Path, stray: str) -> None:
    for name, size in {**SHARDS, stray: 16 * GIB}.items():
        with (folder / name).open("wb") as sparse:
            sparse.truncate(size)
    found = told(run(str(folder), "--gpu", "h100", "--context", "4096", "--json"))
    assert found["weights_bytes"] == 32 * GIB  # vLLM loads all of them
    index = {"weight_map": {str(n): name for n, name in enumerate(SHARDS)}}
    (folder / source.INDEX).write_text(json.dumps(index))
    found = told(run(str(folder), "--gpu", "h100", "--context", "4096", "--json"))
    assert found["weights_bytes"] == 16 * GIB


@pytest.mark.parametrize(
    ("files", "whole"),
    [
        (["model.safetensors"], True),
        (list(SHARDS), True),
        ([*SHARDS, "merged.safetensors"], False),
        (["a-00001-of-00001.safetensors", "b-00001-of-00001.safetensors"], False),
        (["model-00001-of-00002.safetensors", "model-00001-of-00003.safetensors"], False),
        ([], False),
    ],
)
def test_when_the_index_of_a_repository_is_needed(files: list[str], whole: bool) -> None:
    assert source.is_one_set(files) is whole


@pytest.mark.parametrize("content", ["", "[]", "{"])
def test_configs_that_mean_nothing(folder: Path, content: str) -> None:
    (folder / "config.json").write_text(content)
    done = run(str(folder), "--gpu", "h100")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_on_the_cpu_memory_is_judged(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(models.SMOLLM2_135M))
    done = run(str(tmp_path), "--json", ENGINE_DEVICE="cpu")
    assert done.returncode == 0
    assert told(done)["kv_cache_tokens"] == pytest.approx(46_592, rel=0.001)
    (tmp_path / "config.json").write_text(json.dumps(models.DEEPSEEK_V3))
    large = run(str(tmp_path), ENGINE_DEVICE="cpu")
    assert large.returncode == 1
    assert "on the CPU; fix: a smaller MODEL" in large.stdout
    assert os.environ.get("ENGINE_DEVICE") is None


def test_the_cpu_engine_leaves_a_gpu_alone_unless_it_is_named(folder: Path, tmp_path: Path) -> None:
    smi = tmp_path / "bin" / "nvidia-smi"
    smi.parent.mkdir()
    smi.write_text('#!/bin/sh\necho "NVIDIA L40S, 46068"\n')
    smi.chmod(0o755)
    environ = {"path": f"{smi.parent}:/bin", "ENGINE_DEVICE": "cpu"}
    assert told(run(str(folder), "--json", **environ))["gpu"] is None
    assert told(run(str(folder), "--json", "--gpu", "l40s", **environ))["gpu"]["name"] == "L40S"


@pytest.mark.parametrize(
    ("context", "concurrency", "words"),
    [("auto", "99999", "wanted 99999"), ("9000", "1", "wanted at most 8,192"),
     ("8192", "1", "of memory")],
)  # fmt: skip
def test_requests_on_the_cpu(tmp_path: Path, context: str, concurrency: str, words: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps(models.SMOLLM2_135M))
    done = run(
        str(tmp_path), "--context", context, "--concurrency", concurrency, ENGINE_DEVICE="cpu"
    )
    assert words in done.stdout
    assert (done.returncode == 0) == (words == "of memory")
