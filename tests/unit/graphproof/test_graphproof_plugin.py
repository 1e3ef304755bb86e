"""What happens when vLLM loads the plugin: the hook for a module to come, and vLLM's lines."""

from __future__ import annotations

import importlib
import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from graphproof import downgrades, notes, plugin

LINE = "Cudagraph is disabled under eager mode"


@pytest.fixture
def factory(tmp_path: Path) -> Iterator[None]:
    """Records made for a listener of this test alone."""
    before = logging.getLogRecordFactory()
    notes.listen.cache_clear()
    notes.listen(tmp_path)
    notes.listen(tmp_path)
    yield
    logging.setLogRecordFactory(before)
    notes.listen.cache_clear()


@pytest.fixture
def later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A module that can be imported, and isn't yet."""
    (tmp_path / "imported_later.py").write_text("VALUE = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield "imported_later"
    sys.modules.pop("imported_later", None)


def test_a_module_is_seen_once_it_is_whole(later: str) -> None:
    seen: list[tuple[ModuleType, int]] = []
    for _ in range(2):
        plugin.when_imported(later, lambda module: seen.append((module, module.VALUE)))
    assert not seen
    module = importlib.import_module(later)
    assert seen == [(module, 1)]
    assert module.__spec__ is not None
    assert not any(isinstance(each, plugin.Finder) for each in sys.meta_path)
    plugin.when_imported(later, lambda module: seen.append((module, 2)))
    assert seen[1:] == [(module, 2)]


def test_a_module_that_fails_fails_as_ever(later: str, tmp_path: Path) -> None:
    (tmp_path / "imported_later.py").write_text("raise OSError('broken')\n")
    plugin.when_imported(later, lambda _module: pytest.fail("was not imported"))
    with pytest.raises(OSError, match="broken"):
        importlib.import_module(later)


def test_vllms_lines_are_kept(factory: None, tmp_path: Path) -> None:
    logger = logging.getLogger("vllm.config.vllm")
    logger.setLevel(logging.INFO)
    for _ in range(2):
        logger.info(LINE)
    logging.getLogger("vllm").handlers.clear()  # as vLLM does when it configures its loggers
    logger.warning("Cudagraph mode %s is not compatible with compilation mode %s.", "FULL", 0)
    logger.warning("Using cache directory: %s", "/cache")
    logging.getLogger("other").warning(LINE)
    file = tmp_path / f"notes-{os.getpid()}.txt"
    assert file.read_text().splitlines() == [
        LINE,
        "Cudagraph mode FULL is not compatible with compilation mode 0.",
    ]


def test_a_forked_child_has_its_own_file(factory: None, tmp_path: Path) -> None:
    if not (child := os.fork()):
        logging.getLogger("vllm").warning(LINE)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert (tmp_path / f"notes-{child}.txt").read_text() == LINE + "\n"
    assert notes.read_all(tmp_path) == (LINE,)


def test_a_line_that_cannot_be_kept_is_still_logged(
    factory: None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for file in tmp_path.iterdir():
        file.unlink()
    tmp_path.rmdir()
    logging.getLogger("vllm").warning(LINE)
    logging.getLogger("vllm").warning("%d tokens of %s", 1, "a")
    assert LINE in caplog.text
    tmp_path.mkdir()


TEXTS = {
    "Enforce eager set, disabling torch.compile, CUDAGraphs, and JIT kernel warmup.": "eager out",
    "TORCH_COMPILE_DISABLE is set, disabling torch.compile.": "unset TORCH_COMPILE_DISABLE",
    "Cudagraph mode PIECEWISE is not compatible with compilation mode 0.Overriding to NONE.": "-O0",
    "CUDA graphs are not supported with stock torch.compile in Model Runner V2.": "mode out",
    "Piecewise compilation with empty splitting_ops does not contain piecewise cudagraph.": "split",
    "DeepEP: Disabling CUDA Graphs since DeepEP high-throughput kernels are": "low_latency",
    "MoonEP: Disabling CUDA Graphs since the MoonEP integration is": "all2all",
    "KV connector NixlConnector requires PIECEWISE CUDA graph mode": "KV connector",
    "Dynamic speculative decoding changes the target verification length": "fixed number",
    "CUDAGraphMode.FULL is not supported with B backend (support: S); setting": "backend",
    "Cudagraph mode FULL requires piecewise capture, but the loaded model": "BREAKABLE",
    "Skipping CUDA graph capture. To turn on CUDA graph capture, ensure": "cudagraph_mode NONE",
    "Skipping encoder and decoder CUDA graph capture. To enable encoder": "cudagraph_mode NONE",
}


@pytest.mark.parametrize("text", TEXTS)
def test_each_text_has_its_fix(text: str) -> None:
    found = downgrades.of(text)
    assert found is not None
    assert TEXTS[text] in found.fix
    assert found.line == text


@pytest.mark.parametrize(
    "text", ["Graph capturing finished in 5 secs, took 0.98 GiB", "Using V2 Model Runner", ""]
)
def test_other_lines_are_none(text: str) -> None:
    assert downgrades.of(text) is None
