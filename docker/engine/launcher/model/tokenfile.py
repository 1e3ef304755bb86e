"""The Hugging Face token from its file: stripped, checked, and never shown."""

import sys
from pathlib import Path

from launcher.model.fetcherror import Code, FetchError

LONGEST = 4096  # bytes; real tokens have about 40
BOM = "\ufeff"
PLACEHOLDERS = ("changeme", "change_me", "token", "your_token", "your_token_here", "todo", "none")
FIX = "fix: put the token alone into secrets/hf_token, or leave that file empty"


def read(path: Path) -> str | None:
    """The token, or None where there is no file or an empty one. Raises FetchError (TOKEN)."""
    try:
        with path.open("rb") as file:
            raw = file.read(LONGEST + 1)
    except FileNotFoundError:
        return None
    except IsADirectoryError:
        raise _refuse("a folder where the token's file belongs", "remove it and") from None
    except PermissionError:
        raise FetchError(
            Code.TOKEN,
            "HF token: found a file this user may not read; wanted mode 0444 (its folder is 0700);"
            " fix: chmod 0444 secrets/hf_token",
        ) from None
    return parse(raw)


def parse(raw: bytes) -> str | None:
    """The token in a file's bytes: a BOM and white space around it are taken off once."""
    if len(raw) > LONGEST:
        raise _refuse(f"more than {LONGEST} bytes")
    try:
        text = raw.decode("utf-8").removeprefix(BOM).strip()
    except UnicodeDecodeError:
        raise _refuse("bytes that are no text") from None
    if not text:
        return None
    if len(text.splitlines()) > 1:
        raise _refuse("more than one line")
    if not (text.isascii() and text.isprintable()) or " " in text:
        raise _refuse("control characters, spaces or other than ASCII letters in it")
    if _is_placeholder(text):
        raise _refuse("a placeholder")
    return text


def _is_placeholder(text: str) -> bool:
    lowered = text.lower().strip("<>")
    body = lowered.removeprefix("hf_")
    return lowered in PLACEHOLDERS or body in PLACEHOLDERS or set(body) <= {"x", "."}


def _refuse(found: str, first: str = "") -> FetchError:
    return FetchError(
        Code.TOKEN,
        f"HF token: found {found}; wanted one token or an empty file;"
        f" {FIX if not first else FIX.replace('fix: ', f'fix: {first} ')}",
    )


def main(arguments: list[str]) -> int:
    """`python3 -m launcher.model.tokenfile FILE`: 0, or the reason on stderr and its exit code."""
    try:
        read(Path(arguments[0]))
    except FetchError as error:
        sys.stderr.write(f"{error}\n")
        return error.code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
