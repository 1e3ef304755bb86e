"""What served last, and .env going back to it when what was to come next does not come up."""

from pathlib import Path

from stackctl import envfile
from stackctl.layout import Layout

PRIVATE = 0o600


def remember(layout: Layout) -> None:
    """The stack is ready with .env as it is; nothing that failed before is of interest now."""
    envfile.write_atomically(layout.served_env, text_of(layout), PRIVATE)
    layout.failed_env.unlink(missing_ok=True)


def previous(layout: Layout) -> str | None:
    """The text of .env that served last, where that is another one."""
    try:
        text = _read(layout.served_env)
    except FileNotFoundError:
        return None
    return None if text == text_of(layout) else text


def is_served(layout: Layout) -> bool:
    """Whether .env is the one that served last."""
    return layout.served_env.exists() and previous(layout) is None


def restore(layout: Layout, text: str, *, keep_failed: bool) -> None:
    """`text` becomes .env again; an edit that failed is kept beside it, so that none is lost."""
    if keep_failed:
        envfile.write_atomically(layout.failed_env, text_of(layout), PRIVATE)
    put(layout, text)


def put(layout: Layout, text: str) -> None:
    """Write .env in one step, with the mode that it has."""
    envfile.write_atomically(layout.env_file, text, layout.env_file.stat().st_mode & 0o777)


def text_of(layout: Layout) -> str:
    """.env byte for byte (CRLF ends and all)."""
    return _read(layout.env_file)


def _read(path: Path) -> str:
    return path.read_bytes().decode("utf-8")
