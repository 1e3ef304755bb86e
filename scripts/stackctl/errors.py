"""The one error of the CLI: a line for people and an exit code. Imports nothing."""

FAILED = 1
USAGE = 2
INTERRUPTED = 130


class StackError(Exception):
    """A reason that is printed as it stands; `code` becomes the exit status."""

    def __init__(self, line: str, code: int = FAILED) -> None:
        super().__init__(line)
        self.code = code


def problem(found: str, wanted: str, fix: str, code: int = FAILED) -> StackError:
    """The house form of a reason: what was found, what is wanted, how to get there."""
    return StackError(f"found {found}; wanted {wanted}; fix: {fix}", code)
