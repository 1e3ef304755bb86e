"""One screen of what runs, and the same as JSON with stable keys."""

import time
from collections.abc import Mapping
from typing import Any

from stackctl import canary, http

STABLE = (
    "phase", "ready", "message", "model", "served_model_names", "engine_version", "graphs",
    "kv_cache", "running", "waiting", "prompt_tokens_total", "generation_tokens_total",
)  # fmt: skip
MORE = ("debug", "start", "api_servers")  # null from a launcher that does not tell them
DEBUG = "eager, every kernel waited for, verbose: slow on purpose; end it with make up"
SAMPLE_S = 2.0  # the numbers are at most a second old

Report = Mapping[str, Any]


def gather(url: str, mode: str, services: Mapping[str, str], remark: str = "") -> dict[str, Any]:
    """The stable keys, always all of them; unknown ones are null. `remark` joins the message."""
    answer = http.get(url, "/status")
    body = answer.body if answer.status == 200 else {}
    empty: dict[str, Any] = {
        "phase": "stopped" if answer.status == 0 else "unknown",
        "ready": False,
        "message": _silence(answer, url),
        "served_model_names": [],
        "graphs": {"verdict": "unknown", "reason": ""},
        "kv_cache": {"tokens": None, "usage": None},
    }
    values = {name: body.get(name, empty.get(name)) for name in (*STABLE, *MORE)}
    for name in ("served_model_names", "graphs", "kv_cache"):
        values[name] = values[name] or empty[name]
    values["message"] = "; ".join(filter(None, (values["message"], remark)))
    return {"mode": mode, "url": url, **values, "services": dict(services)}


def _silence(answer: http.Answer, url: str) -> str:
    if answer.status == 200:
        return ""
    return answer.reason if answer.status else f"nothing answers at {url}"


def rate(url: str, report: Report) -> float:
    """Generated tokens per second over two seconds; 0 without asking when nothing runs."""
    first = canary.generated(report)
    if not report["running"] or first is None:
        return 0.0
    began = time.monotonic()
    time.sleep(SAMPLE_S)
    second = canary.generated(http.get(url, "/status").body)
    return max(0, (second or first) - first) / (time.monotonic() - began)


def graphs(report: Report) -> str:
    """The verdict with its reason and fix, and what ran without a graph."""
    told = report.get("graphs") or {}
    reason = f" ({told['reason']})" if told.get("reason") else ""
    fix = f"; fix: {told['fix']}" if told.get("fix") else ""
    return f"{told.get('verdict', 'unknown')}{reason}{fix}{_without_graph(told)}"


def _without_graph(told: Report) -> str:
    share = told.get("decode_without_graph") or {}
    if not share.get("steps_share"):
        return ""
    tokens, largest = share.get("tokens_share"), share.get("largest_batch_tokens")
    more = [f"{_percent(tokens)} of their tokens"] if tokens is not None else []
    more += [f"the largest with {largest:,} tokens"] if largest else []
    aside = f" ({', '.join(more)})" if more else ""
    return f"; {_percent(share['steps_share'])} of decode steps without a graph{aside}"


def _percent(share: float) -> str:
    """0.012 -> 1.2 %; what is there is never told as nothing."""
    return "under 0.1 %" if 0 < share < 0.0005 else f"{100 * share:.1f} %"


def kv_tokens(report: Report) -> str:
    """The KV cache's tokens and how the prediction compares; empty when unknown."""
    told = report.get("kv_cache") or {}
    if not told.get("tokens"):
        return ""
    predicted, off = told.get("predicted_tokens"), told.get("difference")
    aside = f" ({100 * off:+.1f} %)" if off is not None else ""
    return f"{told['tokens']:,} tokens{f', predicted {predicted:,}{aside}' if predicted else ''}"


def start(report: Report) -> str:
    """How long the engine's start took, and whether its compile cache was warm; or nothing."""
    told = report.get("start") or {}
    seconds, cache = told.get("seconds"), told.get("compile_cache")
    if seconds is None:
        return ""
    return f"{seconds:.0f} s{f', compile cache {cache}' if cache else ''}"


def screen(report: Report, tokens_per_second: float) -> list[str]:
    """The lines of `status`."""
    if report["phase"] == "stopped":
        return [
            f"mode      {report['mode']}",
            f"url       {report['url']}",
            "phase     stopped; fix: make up",
        ]
    usage, tokens = report["kv_cache"].get("usage"), kv_tokens(report)
    used = "unknown" if usage is None else f"{100 * usage:.1f} %"
    state = report["phase"] + (f": {report['message']}" if report["message"] else "")
    began = start(report)
    return [
        *([f"DEBUG     {DEBUG}"] if report.get("debug") else []),
        f"mode      {report['mode']}",
        f"url       {report['url']}",
        f"phase     {state}",
        f"model     {report['model'] or '-'} (as {', '.join(report['served_model_names']) or '-'})",
        f"engine    vLLM {report['engine_version'] or '-'}{_servers(report)}",
        *([f"start     {began}"] if began else []),
        f"graphs    {graphs(report)}",
        f"kv cache  {used}{f' of {tokens}' if tokens else ''}",
        f"requests  {_number(report['running'])} running, {_number(report['waiting'])} waiting",
        f"tokens/s  {tokens_per_second:.0f}",
        "services",
        *(f"  {name:<8} {what}" for name, what in report["services"].items()),
    ]


def _servers(report: Report) -> str:
    number = report.get("api_servers")
    return f", {number} API server{'s' if number > 1 else ''}" if number else ""


def _number(value: object) -> str:
    return "-" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
