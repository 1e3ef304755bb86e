"""Renders nginx/templates for local mode, as the stock image's entrypoint does in a container.

Standard library only. Knows nothing of modes, ports or processes: values come in, files go out.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from stackctl.errors import problem

SUFFIX = ".template"
NAME = re.compile(r"\$\{(STACK_[A-Z_]+)\}")
# Each of these would end the value's quotes or start a variable in nginx's own syntax.
UNSAFE = re.compile(r"[\"';\\${}\x00-\x1f\x7f]")


def substitute(text: str, variables: Mapping[str, str]) -> str:
    """Replace each ${STACK_NAME}; other `$names` are nginx's own and stay.

    Raises StackError on a name without a value and on a value that nginx could not quote.
    """

    def value(match: re.Match[str]) -> str:
        name = match[1]
        if name not in variables:
            raise problem(f"no {name}", "a value, an nginx template uses it", "set it")
        if UNSAFE.search(variables[name]) or not variables[name]:
            raise problem(
                f"{name}={variables[name]!r}",
                "a value without quotes, semicolons, backslashes, $, braces or line breaks",
                "use a plainer value, or move the checkout to a plainer path",
            )
        return variables[name]

    return NAME.sub(value, text)


def render(templates_dir: Path, out_dir: Path, variables: Mapping[str, str]) -> list[Path]:
    """Write every *.template below templates_dir to the same sub-path of out_dir.

    All are rendered before the first is written, so a StackError leaves out_dir as it was.
    A *.conf of an earlier run that no template makes any more is removed: nginx.conf includes by
    glob. Returns the files written, sorted.
    """
    rendered = {
        out_dir / template.relative_to(templates_dir).with_suffix(""): substitute(
            template.read_text(encoding="utf-8"), variables
        )
        for template in sorted(templates_dir.rglob(f"*{SUFFIX}"))
    }
    if not rendered:
        raise problem(
            f"no *{SUFFIX} in {templates_dir}", "the nginx templates", "git checkout nginx"
        )
    for path, text in rendered.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    for stale in set(out_dir.rglob("*.conf")) - set(rendered):
        stale.unlink()
    return sorted(rendered)


def start_command(binary: str, out_dir: Path, *, as_root: bool) -> Sequence[str]:
    """Arguments that run nginx in the foreground on a rendered out_dir.

    as_root: a master that is root gives its workers to `nobody`, who may not enter a clone below
    /root (mode 0700) and then fails on every larger body; so they stay with the caller.
    """
    directives = "daemon off; user root;" if as_root else "daemon off;"
    return (binary, "-p", f"{out_dir}/", "-c", str(out_dir / "nginx.conf"), "-g", directives)
