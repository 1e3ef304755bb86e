"""One screen of what runs, and the same as JSON with stable keys."""

import time
from collections.abc import Mapping
from typing import Any

from stackctl import canary, http

STABLE = (
    "phase", "ready", "message", "model", "served_model_names", "engine_version", "graphs",
    "kv_cache", "running", "waiting", "prompt_tokens_total", "generation_tokens_total",
)  # fmt: skip
SAMPLE_S = 2.0  # the numbers are at most a second old


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
    values = {name: body.get(name, empty.get(name)) for name in STABLE}
    for name in ("served_model_names", "graphs", "kv_cache"):
        values[name] = values[name] or empty[name]
    values["message"] = "; ".join(filter(None, (values["message"], remark)))
    return {"mode": mode, "url": url, **values, "services": dict(services)}


def _silence(answer: http.Answer, url: str) -> str:
    if answer.status == 200:
        return ""
    return answer.reason if answer.status else f"nothing answers at {url}"


def rate(url: str, report: Mapping[str, Any]) -> float:
    """Generated tokens per second over two seconds; 0 without asking when nothing runs."""
    first = canary.generated(report)
    if not report["running"] or first is None:
        return 0.0
    began = time.monotonic()
    time.sleep(SAMPLE_S)
    second = canary.generated(http.get(url, "/status").body)
    return max(0, (second or first) - first) / (time.monotonic() - began)


def screen(report: Mapping[str, Any], tokens_per_second: float) -> list[str]:
    """The lines of `status`."""
    kv, graphs = report["kv_cache"], report["graphs"]
    usage = "unknown" if kv["usage"] is None else f"{100 * kv['usage']:.1f} %"
    tokens = f" of {kv['tokens']:,} tokens" if kv["tokens"] else ""
    reason = f" ({graphs['reason']})" if graphs["reason"] else ""
    state = report["phase"] + (f": {report['message']}" if report["message"] else "")
    services = [f"  {name:<8} {what}" for name, what in report["services"].items()]
    if report["phase"] == "stopped":
        return [
            f"mode      {report['mode']}",
            f"url       {report['url']}",
            "phase     stopped; fix: make up",
        ]
    return [
        f"mode      {report['mode']}",
        f"url       {report['url']}",
        f"phase     {state}",
        f"model     {report['model'] or '-'} (as {', '.join(report['served_model_names']) or '-'})",
        f"engine    vLLM {report['engine_version'] or '-'}",
        f"graphs    {graphs['verdict']}{reason}",
        f"kv cache  {usage}{tokens}",
        f"requests  {_number(report['running'])} running, {_number(report['waiting'])} waiting",
        f"tokens/s  {tokens_per_second:.0f}",
        "services",
        *services,
    ]


def _number(value: object) -> str:
    return "-" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
