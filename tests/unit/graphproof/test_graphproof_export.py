"""Several API processes export each step once."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

from graphproof import counts
from graphproof.export import Exporter


def test_each_increment_is_taken_once(tmp_path: Path) -> None:
    numbers = counts.create(counts.path_of(tmp_path, 0, 0))
    first, second = Exporter(tmp_path), Exporter(tmp_path)
    assert first.take() == []
    numbers[0], numbers[counts.TOKENS_AT] = 3, 12
    assert first.take() == [("decode", "FULL", 3, 12)]
    assert second.take() == []
    numbers[0], numbers[counts.TOKENS_AT] = 4, 16
    numbers[5], numbers[5 + counts.TOKENS_AT] = 1, 500
    assert second.take() == [("decode", "FULL", 1, 4), ("prefill", "NONE", 1, 500)]
    assert first.take() == []
    first.close()
    second.close()


def taking(folder: Path, rounds: int, taken: multiprocessing.Queue[int]) -> None:
    exporter = Exporter(folder)
    taken.put(sum(steps for _ in range(rounds) for _, _, steps, _ in exporter.take()))
    exporter.close()


def test_processes_side_by_side_lose_and_double_nothing(tmp_path: Path) -> None:
    numbers = counts.create(counts.path_of(tmp_path, 0, 0))
    context = multiprocessing.get_context("spawn")
    taken: multiprocessing.Queue[int] = context.Queue()
    takers = [context.Process(target=taking, args=(tmp_path, 3000, taken)) for _ in range(2)]
    for taker in takers:
        taker.start()
    while any(taker.is_alive() for taker in takers):
        for _ in range(100):
            numbers[0] += 1
    for taker in takers:
        taker.join(30)
    exporter = Exporter(tmp_path)
    rest = sum(steps for _, _, steps, _ in exporter.take())
    exporter.close()
    assert taken.get() + taken.get() + rest == numbers[0] > 0
    taken.close()
    taken.join_thread()
