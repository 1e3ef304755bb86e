"""The command line: `scripts/stack VERB`.

Exit status: 0 done, 1 failed, 2 wrong use or value, 130 Ctrl-C or a signal; `up` and `setup` pass
on the download's own 10 to 16 (docker/engine/launcher/model/fetcherror.py), `logs` Docker's.
"""

import argparse
import http.client
import json
import os
import signal
import sys
from contextlib import nullcontext

from stackctl import (
    caller,
    chat,
    drain,
    engine_env,
    fit,
    init,
    keys,
    lifecycle,
    mode,
    pin,
    restrictions,
    setup,
    swap,
    swapplan,
    up,
    usage,
)
from stackctl import config as settings
from stackctl.console import Console
from stackctl.doctor import examine, facts, report, seen
from stackctl.errors import FAILED, INTERRUPTED, StackError, of_host
from stackctl.layout import Layout, of_this_checkout
from stackctl.lock import exclusive, exclusive_keys

WATCHING = frozenset({"logs", "chat"})  # Ctrl-C is how one leaves these
CHANGING = frozenset({"up", "down", "restart", "init", "setup", "pin", "drain", "resume", "swap"})


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="stack", description="Runs vllm-compose on this host.")
    verbs = top.add_subparsers(dest="verb", required=True, metavar="VERB")
    start = verbs.add_parser("up", help="check, start, follow, ask one question")
    start.add_argument("--timeout", type=float, metavar="S", help="seconds until it must be ready")
    start.add_argument(
        "--debug", action="store_true", help="this start alone: eager, blocking, verbose; slow"
    )
    verbs.add_parser("down", help="stop everything; keys, models and caches stay")
    state = verbs.add_parser("status", help="one screen: model, phase, graphs, KV cache, requests")
    state.add_argument("--json", action="store_true")
    log = verbs.add_parser("logs", help="what the services say")
    log.add_argument("service", nargs="?")
    log.add_argument("-n", "--tail", type=int, default=100, metavar="N")
    log.add_argument("-f", "--follow", action=argparse.BooleanOptionalAction, default=None)
    again = verbs.add_parser("restart", help="restart all services or one")
    again.add_argument("service", nargs="?")
    _add_swap(verbs.add_parser("swap", help="another model, without a failed request"))
    out = verbs.add_parser("drain", help="an engine takes no more requests; waits for what it runs")
    out.add_argument("engine", nargs="?", default="vllm")
    verbs.add_parser("resume", help="it takes requests again").add_argument(
        "engine", nargs="?", default="vllm"
    )
    verbs.add_parser("init", help="write .env and secrets/; never overwrites")
    check = verbs.add_parser("doctor", help="check this host: found, wanted, fix")
    check.add_argument("--json", action="store_true")
    # Its options are the program's own, which `fit --help` lists.
    size = verbs.add_parser("fit", help="does MODEL fit?", add_help=False, prefix_chars="\0")
    size.add_argument("words", nargs="*")
    digests = verbs.add_parser("pin", help="hold all base images to their digests of today")
    digests.add_argument("--unpin", action="store_true", help="let the tags count again")
    talk = verbs.add_parser("chat", help="talk to the model")
    talk.add_argument("message", nargs="*", help="one question; without it, a conversation")
    talk.add_argument(
        "--temperature",
        type=float,
        metavar="T",
        default=0.0,
        help="default 0: always the likeliest word",
    )
    talk.add_argument("--max-tokens", type=int, metavar="N")
    _add_usage(verbs.add_parser("usage", help="requests and tokens, by key, model or day"))
    install = verbs.add_parser("setup", help="make .venv from the lock")
    install.add_argument("--engine", action="store_true", help="also local mode's engine and model")
    _add_key_verbs(verbs.add_parser("key", help="API keys"))
    return top


def _add_swap(swapping: argparse.ArgumentParser) -> None:
    swapping.add_argument("model", nargs="?", metavar="MODEL", help="a hub id or a local folder")
    swapping.add_argument("settings", nargs="*", metavar="NAME=VALUE", help="engine settings")
    swapping.add_argument("--preset", metavar="NAME", help="a file of compose/models")
    swapping.add_argument("--dry-run", action="store_true", help="show the plan, change nothing")
    swapping.add_argument("--timeout", type=float, metavar="S", help="until it must be ready")


def _add_usage(report: argparse.ArgumentParser) -> None:
    report.add_argument("--by", default="key", metavar="WHAT", help="key (default), model or day")
    report.add_argument("--since", metavar="DATE", help="first day that counts, UTC: 2027-01-31")
    report.add_argument("--until", metavar="DATE", help="last day that counts")
    report.add_argument("--key", metavar="NAME", help="this key alone")
    report.add_argument("--model", metavar="NAME", help="this model alone")
    report.add_argument("--json", action="store_true")


def _add_key_verbs(key: argparse.ArgumentParser) -> None:
    actions = key.add_subparsers(dest="action", required=True, metavar="ACTION")
    add = actions.add_parser("add", help="make a key and print it")
    add.add_argument("name")
    add.add_argument("--models", metavar="A,B", help="only these, comma between them")
    add.add_argument("--expires", metavar="DATE", help="2027-01-31 or 2027-01-31T12:00:00Z")
    for limit in restrictions.LARGEST:
        add.add_argument(restrictions.option(limit), metavar="N")
    every = actions.add_parser("list", help="names, without the keys")
    every.add_argument("--json", action="store_true")
    actions.add_parser("revoke", help="remove a key").add_argument("name")
    actions.add_parser("show", help="print a key").add_argument("name")


def run(args: argparse.Namespace, layout: Layout, console: Console) -> int:
    guard = exclusive(layout) if args.verb in CHANGING else nullcontext()
    with guard:
        return VERBS[args.verb](args, layout, console)


def _up(args: argparse.Namespace, layout: Layout, console: Console) -> int:
    return up.up(layout, console, args.timeout, debug=args.debug)


def _down(_: argparse.Namespace, layout: Layout, console: Console) -> int:
    return lifecycle.down(layout, settings.read(layout), console)


def _status(args: argparse.Namespace, layout: Layout, console: Console) -> int:
    return lifecycle.show_status(layout, settings.read(layout), console, args.json)


def _logs(args: argparse.Namespace, layout: Layout, console: Console) -> int:
    follow = console.is_terminal if args.follow is None else args.follow
    config = settings.read(layout)
    return lifecycle.logs(layout, config, console, args.service, follow, args.tail)


def _restart(args: argparse.Namespace, layout: Layout, console: Console) -> int:
    return lifecycle.restart(layout, settings.read(layout), console, args.service)


def _swap(args: argparse.Namespace, layout: Layout, console: Console) -> int:
    words = [args.model, *args.settings] if args.model else []
    # argparse cannot tell a MODEL that is left out from a NAME=VALUE that follows --preset.
    model = words.pop(0) if words and args.preset is None else None
    wanted = swapplan.Wanted(model, args.preset, words)
    return swap.swap(layout, console, wanted, args.timeout, dry_run=args.dry_run)


def _drain(args: argparse.Namespace, layout: Layout, console: Console) -> int:
    return drain.drain(layout, settings.read(layout), console, args.engine)


def _resume(args: argparse.Namespace, layout: Layout, console: Console) -> int:
    return drain.resume(layout, settings.read(layout), console, args.engine)


def _init(_: argparse.Namespace, layout: Layout, console: Console) -> int:
    made = init.make(layout)
    config = settings.read(layout)
    host = facts.read_host()
    chosen = mode.decide(config.get("STACK_MODE"), host.engine, host.gpus)
    init.keep_compose_file(layout, config, chosen)
    for item in made or ["nothing: .env and secrets/ are there"]:
        console.line(f"made {item}")
    console.line(f"mode: {chosen}. Next: edit .env if you like, then make up")
    return 0


def _doctor(args: argparse.Namespace, layout: Layout, console: Console) -> int:
    config = settings.read(layout)
    host = facts.read_host()
    chosen = mode.intended(config.get("STACK_MODE"), host.engine, host.gpus)
    around = seen.gather(layout, chosen)
    found = examine.examine(layout, config, host, chosen, around)
    found += fit.check(layout, config, chosen)
    return report.show(console, chosen, found, seen.told(host, around) if args.json else None)


def _fit(args: argparse.Namespace, layout: Layout, _: Console) -> int:
    return fit.show(layout, settings.read(layout), args.words)


def _pin(args: argparse.Namespace, layout: Layout, console: Console) -> int:
    work = pin.unpin if args.unpin else pin.pin
    return work(layout, settings.read(layout), console)


def _chat(args: argparse.Namespace, layout: Layout, console: Console) -> int:
    given = {"temperature": args.temperature, "max_tokens": args.max_tokens}
    options = {name: value for name, value in given.items() if value is not None}
    key = caller.usable(layout)
    talk = chat.Chat(settings.read(layout).url, key.key if key else None, options)
    if args.message or not sys.stdin.isatty():
        text = " ".join(args.message) or sys.stdin.read()
        chat.answer(talk, [{"role": "user", "content": text}], console)
    else:
        chat.converse(talk, console)
    return 0


def _usage(args: argparse.Namespace, layout: Layout, console: Console) -> int:
    usage.check(args.by)
    filters = {name: getattr(args, name) for name in ("since", "until", "key", "model")}
    options = usage.options(args.by, filters, args.json)
    return usage.show(layout, settings.read(layout), console, options)


def _setup(args: argparse.Namespace, layout: Layout, console: Console) -> int:
    setup.ensure(layout, console)
    if args.engine:
        engine_env.ensure(layout, settings.read(layout), console)
        engine_env.ensure_model(layout, console)
    return 0


def _key(args: argparse.Namespace, layout: Layout, console: Console) -> int:
    if args.action == "show":
        console.line(keys.show(layout, args.name))
    elif args.action == "list":
        _key_list(keys.listing(layout), console, args.json)
    else:
        with exclusive_keys(layout):
            _key_change(args, layout, console)
    return 0


def _key_list(rows: list[dict[str, object]], console: Console, as_json: bool) -> None:
    if as_json:
        console.line(json.dumps({"keys": rows}, indent=2))
        return
    for row in rows:
        bounds = ("models", "expires", *restrictions.LARGEST)
        limits = [f"{name} {row[name]}" for name in bounds if row[name] is not None]
        console.line(f"{row['name']:<20} {str(row['sha256'])[:12]}  {'; '.join(limits)}".rstrip())


def _key_change(args: argparse.Namespace, layout: Layout, console: Console) -> None:
    if args.action == "revoke":
        keys.revoke(layout, args.name)
        console.line(f"revoked {args.name}; it stops working within two seconds")
        return
    console.line(keys.add(layout, args.name, restrictions.of_options(vars(args))))
    console.note(f"made {args.name}; it works within two seconds")


VERBS = {
    "up": _up, "down": _down, "status": _status, "logs": _logs, "restart": _restart,
    "init": _init, "doctor": _doctor, "chat": _chat, "setup": _setup, "key": _key,
    "usage": _usage, "pin": _pin, "fit": _fit, "swap": _swap, "drain": _drain, "resume": _resume,
}  # fmt: skip


def main() -> int:
    # A kill, or a session that is closed, ends us the way Ctrl-C does: undone, one line.
    for number in up.ENDING:
        if signal.getsignal(number) is signal.SIG_DFL:  # nohup has us ignore one
            signal.signal(number, signal.default_int_handler)
    console = Console()
    try:
        return run(parser().parse_args(), of_this_checkout(), console)
    except StackError as error:
        console.error(str(error))
        return error.code
    except KeyboardInterrupt:
        if sys.argv[1:2] and sys.argv[1] in WATCHING:
            return 0
        console.error("interrupted")
        return INTERRUPTED
    except BrokenPipeError as error:
        return _unread(error, console)
    except (OSError, http.client.HTTPException) as error:
        console.error(of_host(error))
        return FAILED


def _unread(error: BrokenPipeError, console: Console) -> int:
    """`stack logs | head`: what is only shown may stay unread, half a change may not."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else Python's last flush fails
    if sys.argv[1:2] and sys.argv[1] in CHANGING:
        console.error(of_host(error))
        return FAILED
    return 0


if __name__ == "__main__":
    sys.exit(main())
