"""Counting each step of a worker by the graph it ran in. Runs on every step of the engine: it adds
about a microsecond, plus one look at each request's number of output tokens."""

from typing import Protocol

from graphproof.counts import KINDS, LARGEST_AT, MODES, TOKENS_AT

FULL, PIECEWISE, NONE = range(len(MODES))
PREFILL_AT = len(MODES) * KINDS.index("prefill")


class CachedRequests(Protocol):
    """vLLM's CachedRequestData: requests that ran before, as lists of equal length."""

    resumed_req_ids: set[str]
    # With the tokens that are being made: 0 until a request's last prompt token is scheduled.
    num_output_tokens: list[int]


class Scheduled(Protocol):
    """vLLM's SchedulerOutput, as far as it is the same from 0.24 to 0.33."""

    scheduled_new_reqs: list[object]
    scheduled_cached_reqs: CachedRequests
    num_scheduled_tokens: dict[str, int]
    total_num_scheduled_tokens: int


class Steps:
    """One worker's counters. `mode` is what the step that is running was seen to use."""

    def __init__(
        self, numbers: memoryview, decode_query_len: int, *, full: bool, pieces: bool
    ) -> None:
        """numbers: as in graphproof.counts. full, pieces: whether such graphs were captured; vLLM
        says PIECEWISE for a model without compiled parts, too, and runs it without a graph."""
        self._numbers = numbers
        self._decode_query_len = decode_query_len
        self.by_name = {
            "FULL": FULL if full else NONE,
            "PIECEWISE": PIECEWISE if pieces else NONE,
            "NONE": NONE,
        }
        self.mode = NONE

    def count(self, step: Scheduled) -> None:
        """Add a step that ran. Steps without tokens run nothing."""
        tokens = step.total_num_scheduled_tokens
        if not tokens:
            return
        numbers, place = self._numbers, self.mode
        if not decodes(step, tokens, self._decode_query_len):
            place += PREFILL_AT
        elif place == NONE and tokens > numbers[LARGEST_AT]:
            numbers[LARGEST_AT] = tokens
        numbers[place] += 1
        numbers[place + TOKENS_AT] += tokens


def decodes(step: Scheduled, tokens: int, decode_query_len: int) -> bool:
    """Whether every request is past its prompt and makes its next tokens only."""
    cached = step.scheduled_cached_reqs
    if step.scheduled_new_reqs or cached.resumed_req_ids or 0 in cached.num_output_tokens:
        return False
    # Every request has a token at least, so that most steps need no look at each.
    each = step.num_scheduled_tokens
    return tokens == len(each) or max(each.values()) <= decode_query_len
