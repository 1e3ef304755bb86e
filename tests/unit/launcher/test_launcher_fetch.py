"""`python3 -m launcher.model.fetch` as a process: the real huggingface_hub, a small hub."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from fakehub import COMMIT, GOOD_TOKEN, Hub, Model
from launcher.model import manifest as manifests

ROOT = Path(__file__).resolve().parents[3]
NAME = "acme/tiny"
SMALL = {
    "config.json": b'{"model_type": "llama"}',
    "tokenizer.json": b"{}",
    "tokenizer_config.json": b"{}",
    "README.md": b"# tiny\n",
    ".gitattributes": b"*\n",
}
WEIGHTS = os.urandom(3_000_000)


def tiny(**fields: bool) -> Model:
    return Model({**SMALL, "model.safetensors": WEIGHTS, "pytorch_model.bin": b"x" * 99}, **fields)


def environment(folder: Path, endpoint: str, **more: str) -> dict[str, str]:
    return {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(ROOT / "docker/engine"),
        "HOME": str(folder),
        "HF_HOME": str(folder / "hf"),
        "HF_ENDPOINT": endpoint,
        "HF_TOKEN_PATH": str(folder / "token"),
        "ENGINE_MODELS_DIR": str(folder / "models"),
        "ENGINE_DEVICE": "cpu",
        "MODEL": NAME,
        **more,
    }


def fetch(folder: Path, endpoint: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "launcher.model.fetch"],
        env=environment(folder, endpoint, **more),
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )


def manifest(folder: Path) -> dict[str, str]:
    told = json.loads((folder / "models/manifest.json").read_text())
    newest: dict[str, str] = told["models"][0]
    return newest


def refused(done: subprocess.CompletedProcess[str], code: int, *words: str) -> None:
    """One line, the right exit code, and nothing half-done for the launcher to trip over."""
    assert done.returncode == code, done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr
    for word in ("found", "wanted", "fix:", *words):
        assert word in done.stderr


def test_it_fetches_what_vllm_needs_and_says_where(tmp_path: Path) -> None:
    with Hub({NAME: tiny()}) as hub:
        done = fetch(tmp_path, hub.url)
    assert done.returncode == 0, done.stderr
    made = manifest(tmp_path)
    assert {key: made[key] for key in ("requested", "requested_revision", "model", "revision")} == {
        "requested": NAME, "requested_revision": "", "model": NAME, "revision": COMMIT,
    }  # fmt: skip
    folder = Path(made["path"])
    assert (folder / "model.safetensors").read_bytes() == WEIGHTS
    # Safetensors exist, so the older form is left where it is; so is what vLLM never reads.
    assert not (folder / "pytorch_model.bin").exists()
    assert not (folder / "README.md").exists()
    assert "model: 100 % (0.0 GB)" in done.stdout


def test_a_complete_cache_needs_no_network(tmp_path: Path) -> None:
    with Hub({NAME: tiny()}) as hub:
        assert fetch(tmp_path, hub.url).returncode == 0
        asked = len(hub.seen)
        assert fetch(tmp_path, hub.url).returncode == 0
        assert len(hub.seen) == asked
        dead = hub.url
    before = manifest(tmp_path)
    assert fetch(tmp_path, dead).returncode == 0
    assert manifest(tmp_path) == before


def test_a_cache_somebody_else_filled_serves_when_the_hub_is_away(tmp_path: Path) -> None:
    with Hub({NAME: tiny()}) as hub:
        assert fetch(tmp_path, hub.url).returncode == 0
        dead = hub.url
    (tmp_path / "models/complete.json").unlink()
    done = fetch(tmp_path, dead)
    assert done.returncode == 0, done.stderr
    assert manifest(tmp_path)["revision"] == COMMIT
    (Path(manifest(tmp_path)["path"]) / "model.safetensors").unlink()
    refused(fetch(tmp_path, dead), 14, "network")


def test_a_file_that_went_missing_is_fetched_again(tmp_path: Path) -> None:
    with Hub({NAME: tiny()}) as hub:
        fetch(tmp_path, hub.url)
        weights = Path(manifest(tmp_path)["path"]) / "model.safetensors"
        weights.resolve().unlink()
        weights.unlink()
        assert fetch(tmp_path, hub.url).returncode == 0
        assert weights.read_bytes() == WEIGHTS


def test_without_safetensors_the_older_form_is_taken(tmp_path: Path) -> None:
    with Hub({NAME: Model({**SMALL, "pytorch_model.bin": b"x" * 99})}) as hub:
        assert fetch(tmp_path, hub.url).returncode == 0
    assert (Path(manifest(tmp_path)["path"]) / "pytorch_model.bin").is_file()


def test_a_killed_download_resumes(tmp_path: Path) -> None:
    big = os.urandom(40_000_000)
    with Hub({NAME: Model({**SMALL, "model.safetensors": big})}) as hub:
        hub.cut_after = 20_000_000
        process = subprocess.Popen(
            [sys.executable, "-m", "launcher.model.fetch"],
            env=environment(tmp_path, hub.url),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        end = time.monotonic() + 30
        while hub.sent < hub.cut_after and time.monotonic() < end:
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert not (tmp_path / "models/manifest.json").exists()
        half = [p.stat().st_size for p in (tmp_path / "hf").rglob("*.part")]
        hub.cut_after = None
        hub.sent = 0
        done = fetch(tmp_path, hub.url)
        assert done.returncode == 0, done.stderr
        assert (Path(manifest(tmp_path)["path"]) / "model.safetensors").read_bytes() == big
        # What was on disk when it was killed is not sent again.
        assert max(half) > 0
        assert hub.sent <= len(big) - max(half) + sum(map(len, SMALL.values()))


def test_no_such_model(tmp_path: Path) -> None:
    with Hub({}) as hub:
        refused(fetch(tmp_path, hub.url), 10, NAME, "private one looks the same")
        (tmp_path / "token").write_text(GOOD_TOKEN)
        refused(fetch(tmp_path, hub.url), 10, NAME)
    assert not (tmp_path / "models/manifest.json").exists()


def test_no_such_revision(tmp_path: Path) -> None:
    with Hub({NAME: tiny()}) as hub:
        refused(fetch(tmp_path, hub.url, MODEL_REVISION="v9"), 10, "MODEL_REVISION", "v9")


def test_a_gated_model(tmp_path: Path) -> None:
    with Hub({NAME: tiny(gated=True)}) as hub:
        refused(fetch(tmp_path, hub.url), 11, "licence", "secrets/hf_token")
        (tmp_path / "token").write_text(GOOD_TOKEN)
        refused(fetch(tmp_path, hub.url), 11, "licence", f"{hub.url}/{NAME}")


def test_a_bad_token_and_a_private_model(tmp_path: Path) -> None:
    with Hub({NAME: tiny(private=True)}) as hub:
        refused(fetch(tmp_path, hub.url), 10, "private one looks the same without a token")
        (tmp_path / "token").write_text("hf_wrongwrong\r\n")
        done = fetch(tmp_path, hub.url)
        refused(done, 12, "one the hub refuses")
        assert "hf_wrongwrong" not in done.stdout + done.stderr
        (tmp_path / "token").write_text("\ufeff" + GOOD_TOKEN + "\n")
        assert fetch(tmp_path, hub.url).returncode == 0
        assert set(hub.tokens) == {None, "hf_wrongwrong", GOOD_TOKEN}


def test_a_hub_that_wants_a_token(tmp_path: Path) -> None:
    with Hub({NAME: tiny()}, always=(401, "")) as hub:
        refused(fetch(tmp_path, hub.url), 12, "found none")


def test_a_token_in_the_environment_is_not_used(tmp_path: Path) -> None:
    with Hub({NAME: tiny()}) as hub:
        assert fetch(tmp_path, hub.url, HF_TOKEN="hf_leaked").returncode == 0
        assert set(hub.tokens) == {None}


def test_rate_limit(tmp_path: Path) -> None:
    with Hub({NAME: tiny()}, always=(429, "")) as hub:
        refused(fetch(tmp_path, hub.url), 13, "429")


def test_a_hub_that_fails(tmp_path: Path) -> None:
    with Hub({NAME: tiny()}, always=(500, "")) as hub:
        refused(fetch(tmp_path, hub.url), 14, "HTTP 500")


def test_no_network(tmp_path: Path) -> None:
    with Hub({}) as hub:
        dead = hub.url
    refused(fetch(tmp_path, dead), 14, "network, DNS and proxy")


@pytest.mark.parametrize(
    ("text", "word"),
    [
        (b"hf_one\nhf_two", "more than one line"),
        (b"changeme", "placeholder"),
        (b"hf_xxxxxxxx", "placeholder"),
        (b"hf_a\x00b", "control characters"),
        (b"x" * (1 << 20), "more than 4096 bytes"),
        (b"\xff\xfe\x00", "no text"),
    ],
)
def test_a_token_file_that_is_none(tmp_path: Path, text: bytes, word: str) -> None:
    (tmp_path / "token").write_bytes(text)
    with Hub({NAME: tiny()}) as hub:
        done = fetch(tmp_path, hub.url)
        refused(done, 12, word)
        assert not hub.seen
    assert "hf_one" not in done.stderr


@pytest.mark.parametrize("text", [b"", b"\n", b"\xef\xbb\xbf", b" \r\n "])
def test_an_empty_token_file_is_no_token(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "token").write_bytes(text)
    with Hub({NAME: tiny()}) as hub:
        assert fetch(tmp_path, hub.url).returncode == 0
        assert set(hub.tokens) == {None}


def test_a_folder_in_the_token_files_place(tmp_path: Path) -> None:
    (tmp_path / "token").mkdir()
    with Hub({NAME: tiny()}) as hub:
        refused(fetch(tmp_path, hub.url), 12, "folder", "remove it")


def test_only_other_weights(tmp_path: Path) -> None:
    with Hub({NAME: Model({**SMALL, "tiny.Q4_1.gguf": b"x"})}) as hub:
        refused(fetch(tmp_path, hub.url), 16, "safetensors")


def test_a_local_folder(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    refused(fetch(tmp_path, "http://127.0.0.1:9", MODEL=str(folder)), 10, str(folder))
    folder.mkdir()
    for name, data, word in [
        ("config.json", b"{}", "no config.json"),
        (
            "model.safetensors.index.json",
            b'{"weight_map": {"a": "m-1.safetensors", "b": "m-2.safetensors"}}',
            "no weights",
        ),
        ("m-1.safetensors", b"x", "2 of 2 weights files are missing"),
        ("m-2.safetensors", b"x", "1 of 2 weights files are missing (m-2.safetensors"),
        ("tokenizer.json", b"{}", "no tokenizer"),
    ]:
        refused(fetch(tmp_path, "http://127.0.0.1:9", MODEL=str(folder)), 16, word)
        (folder / name).write_bytes(data)
    done = fetch(tmp_path, "http://127.0.0.1:9", MODEL=str(folder))
    assert done.returncode == 0, done.stderr
    assert manifest(tmp_path)["path"] == str(folder)
    assert manifest(tmp_path)["model"] == "mine"


def test_a_bad_model_value(tmp_path: Path) -> None:
    done = fetch(tmp_path, "http://127.0.0.1:9", MODEL="-rf /")
    refused(done, 2, "MODEL")


def test_a_download_larger_than_the_disk_is_refused_before_it_starts(tmp_path: Path) -> None:
    """The size comes from the hub's listing; nothing of that size is ever sent."""
    model = Model({**SMALL, "model.safetensors": b"x"}, listed={"model.safetensors": 1 << 60})
    with Hub({NAME: model}) as hub:
        refused(fetch(tmp_path, hub.url), 15, "GB free", NAME)
        assert not [path for _, path, _ in hub.seen if "/resolve/" in path]


def test_a_disk_that_fills_up_on_the_way(tmp_path: Path) -> None:
    """On a real small file system, in a mount namespace of its own. The listing tells less than
    comes, as when something else fills the disk meanwhile."""
    alone = ["unshare", "--user", "--map-root-user", "--mount"]
    if subprocess.run([*alone, "true"], check=False).returncode:
        pytest.skip("this host lets no user make a mount namespace")
    big = bytes(300_000_000)
    model = Model({**SMALL, "model.safetensors": big}, listed={"model.safetensors": 2_000_000})
    script = 'mount -t tmpfs -o size=272m stack "$HF_HOME" && exec "$0" -m launcher.model.fetch'
    (tmp_path / "hf").mkdir()
    with Hub({NAME: model}) as hub:
        done = subprocess.run(
            [*alone, "sh", "-c", script, sys.executable],
            env=environment(tmp_path, hub.url),
            capture_output=True,
            text=True,
            timeout=50,
            check=False,
        )
    refused(done, 15, "full", NAME)
    assert not (tmp_path / "models/manifest.json").exists()


def test_one_download_at_a_time(tmp_path: Path) -> None:
    with Hub({NAME: tiny()}) as hub:
        running = [
            subprocess.Popen(
                [sys.executable, "-m", "launcher.model.fetch"],
                env=environment(tmp_path, hub.url),
                stdout=subprocess.PIPE,
                text=True,
            )
            for _ in range(2)
        ]
        said = [process.communicate(timeout=50)[0] for process in running]
        assert [process.returncode for process in running] == [0, 0]
    assert sorted("complete in the cache" in text for text in said) == [False, True]
    assert len([path for method, path, _ in hub.seen if method == "GET" and "safet" in path]) == 1


def test_the_manifest_of_the_model_that_serves_outlives_the_next_ones(tmp_path: Path) -> None:
    first = manifests.Manifest("acme/one", "", "acme/one", "/one", "a" * 40)
    manifests.write(tmp_path, first)
    manifests.write(tmp_path, manifests.Manifest("acme/two", "", "acme/two", "/two", None))
    manifests.write(tmp_path, manifests.Manifest("acme/one", "v2", "acme/one", "/v2", None))
    assert manifests.read_for(tmp_path, "acme/one", None) == first
    assert [each.path for each in manifests.read(tmp_path)] == ["/v2", "/two", "/one"]
    again = manifests.Manifest("acme/one", "", "acme/one", "/again", None)
    manifests.write(tmp_path, again)
    assert manifests.read_for(tmp_path, "acme/one", "") == again
    assert len(manifests.read(tmp_path)) == 3
    for number in range(20):
        manifests.write(tmp_path, manifests.Manifest(f"acme/{number}", "", "x", "/x", None))
    assert len(manifests.read(tmp_path)) == manifests.KEPT
    with pytest.raises(manifests.ManifestError, match="found acme/19 fetched; wanted acme/two"):
        manifests.read_for(tmp_path, "acme/two", None)
