"""Who reads the log may stop: nobody waits, what was kept comes in order, what was lost is told."""

from __future__ import annotations

import json
import os

import pytest

from gateway import lines
from gateway.lines import whole_lines


def read_all(fd: int, until: bytes) -> bytes:
    data = b""
    while not data.endswith(until):
        data += os.read(fd, 65536)
    return data


def test_a_full_pipe_holds_nobody_up() -> None:
    reader, writer = os.pipe()
    stream = whole_lines(writer)
    sent = [b"%06d %b\n" % (number, b"x" * 200) for number in range(5000)]  # a pipe takes 64 kB
    for each in sent:
        stream.buffer.write(each)
    assert read_all(reader, sent[-1]) == b"".join(sent)
    stream.write("again\n")
    assert read_all(reader, b"again\n") == b"again\n"
    os.close(reader)


def test_what_is_too_much_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "MAX_KEPT", 100_000)
    reader, writer = os.pipe()
    stream = whole_lines(writer)
    sent = [b"%06d %b\n" % (number, b"x" * 200) for number in range(5000)]
    for each in sent:
        stream.buffer.write(each)
    *kept, told = read_all(reader, b'stopped"}\n').splitlines(keepends=True)
    assert kept == sent[: len(kept)]
    assert json.loads(told)["message"].startswith(f"{len(sent) - len(kept)} log lines were lost")
    os.close(reader)
