"""The one error of the CLI: a line for people and an exit code. Imports nothing of the package."""

import errno

FAILED = 1
USAGE = 2
INTERRUPTED = 130
_FIXES = {
    errno.ENOSPC: "free some disk",
    errno.EDQUOT: "free some disk, or raise the quota",
    errno.EROFS: "use a checkout on a writable disk",
    errno.EACCES: "correct its owner and mode",
    errno.EPERM: "correct its owner and mode",
    errno.ENOTDIR: "remove the file that stands where a folder belongs",
    errno.EEXIST: "remove the file that stands where a folder belongs",
    errno.EISDIR: "remove the folder that stands where a file belongs",
}


class StackError(Exception):
    """A reason that is printed as it stands; `code` becomes the exit status."""

    def __init__(self, line: str, code: int = FAILED) -> None:
        super().__init__(line)
        self.code = code


def problem(found: str, wanted: str, fix: str, code: int = FAILED) -> StackError:
    """The house form of a reason: what was found, what is wanted, how to get there."""
    return StackError(f"found {found}; wanted {wanted}; fix: {fix}", code)


def of_host(error: Exception) -> str:
    """An OSError or HTTPException as one line: what, where, and what to do."""
    number = getattr(error, "errno", None)
    what = getattr(error, "strerror", None) or type(error).__name__
    name = getattr(error, "filename", None)
    where = f"{name}: " if name else ""
    fix = _FIXES.get(number or 0, "try again; make down and make up if it stays")
    return f"{where}{what}; fix: {fix}"
