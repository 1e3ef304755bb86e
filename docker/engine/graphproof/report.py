"""What one worker tells about its CUDA graphs once its warm-up is over: a JSON file each."""

import dataclasses
import json
import os
import types
import typing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

Runner = Literal["v1", "v2"]
Device = Literal["cuda", "cpu"]
Kind = Literal["generate", "pooling"]
PATTERN = "worker-dp*-rank*.json"


class ReportError(ValueError):
    """A report that isn't one: in words, with the file's name where it has one."""


@dataclass(frozen=True, kw_only=True)
class WorkerReport:
    """One worker of vLLM. Sizes are in tokens of a step, `memory` in bytes.

    mode: the resolved cudagraph_mode, such as FULL_AND_PIECEWISE. full_sizes, piecewise_sizes: what
    was really captured. graphs: vLLM's own count of captures, where each piece counts. notes: lines
    in which vLLM said that it takes graphs away. memory: those that exist of total, free_at_start,
    requested, weights, peak_activation, non_torch, graphs_estimate, available_kv. error: what of
    this vLLM the plugin did not understand.
    """

    dp_rank: int
    rank: int
    vllm: str
    torch: str
    runner: Runner
    device: Device
    kind: Kind
    mode: str | None = None
    compile_mode: str | None = None
    backend: str | None = None
    full_sizes: tuple[int, ...] = ()
    piecewise_sizes: tuple[int, ...] = ()
    graphs: int = 0
    capture_seconds: float | None = None
    capture_bytes: int | None = None
    compile_seconds: float | None = None
    decode_query_len: int = 1
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    enforce_eager: bool = False
    notes: tuple[str, ...] = ()
    memory: dict[str, int] = field(default_factory=dict)
    error: str | None = None

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self), indent=1) + "\n"

    def with_error(self, error: str) -> "WorkerReport":
        return dataclasses.replace(self, error=error)

    @classmethod
    def from_json(cls, text: str) -> "WorkerReport":
        """Raises ReportError for anything that to_json would not write."""
        try:
            values = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ReportError(f"no JSON: {error}") from error
        types_of = typing.get_type_hints(cls)
        if not isinstance(values, dict) or values.keys() != types_of.keys():
            raise ReportError("not the fields of a worker's report")
        for name, value in values.items():
            if isinstance(value, list):
                values[name] = tuple(value)
            if not _fits(values[name], types_of[name]):
                raise ReportError(f"{name}: found {value!r}")
        return cls(**values)


def _fits(value: object, wanted: object) -> bool:
    """Whether `value` has the type `wanted`, as far as reports use types."""
    origin, arguments = typing.get_origin(wanted), typing.get_args(wanted)
    if origin is types.UnionType:
        return any(_fits(value, each) for each in arguments)
    if origin is Literal:
        return value in arguments
    if origin is tuple:
        return isinstance(value, tuple) and all(_fits(each, arguments[0]) for each in value)
    if origin is dict:
        return isinstance(value, dict) and all(_fits(each, arguments[1]) for each in value.values())
    if wanted is float and type(value) is int:
        return True
    return type(value) is wanted


def write(folder: Path, made: WorkerReport) -> None:
    """In one step, so that no reader sees half of it. Raises OSError."""
    path = folder / f"worker-dp{made.dp_rank}-rank{made.rank}.json"
    part = path.with_suffix(f".part{os.getpid()}")
    part.write_text(made.to_json())
    part.replace(path)


def read_all(folder: Path) -> list[WorkerReport]:
    """Every worker's report, in the order of ranks. Raises ReportError naming the file."""
    found = []
    for path in folder.glob(PATTERN):
        try:
            found.append(WorkerReport.from_json(path.read_text()))
        except (ReportError, UnicodeDecodeError) as error:
            raise ReportError(f"{path}: {error}") from error
    return sorted(found, key=lambda each: (each.dp_rank, each.rank))
