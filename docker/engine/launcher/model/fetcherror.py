"""Why a model can't be had: one line with found, wanted and fix, and an exit code of its own."""

from enum import IntEnum


class Code(IntEnum):
    """Exit codes of `python3 -m launcher.model.fetch`."""

    NO_SUCH_MODEL = 10
    GATED = 11
    TOKEN = 12
    RATE_LIMIT = 13
    NETWORK = 14
    DISK = 15
    UNUSABLE = 16


class FetchError(Exception):
    """A reason the operator can act on."""

    def __init__(self, code: Code, line: str) -> None:
        super().__init__(line)
        self.code = code
