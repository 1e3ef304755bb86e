"""The limits of one key: a window of any 60 s, tokens settled, requests at one time, 429."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from gateway.errors import RateLimited, TokensLimited
from gateway.keys import Key
from gateway.limits import told
from gateway.limits.limiter import FREE, Pass
from gateway.limits.local import LocalLimiter
from gateway.limits.window import SECOND, Window

KEY = Key("team-a", b"digest-of-a")


class Clock:
    """Nanoseconds that move when they are told to."""

    def __init__(self) -> None:
        self.now = 123_456_789_012_345

    def __call__(self) -> int:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += round(seconds * SECOND)


class Bench:
    """A limiter, its clock, and calls without awaiting."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.limiter = LocalLimiter(self.clock)

    def enter(self, key: Key, tokens: int = 0) -> Pass:
        return run(lambda: self.limiter.enter(key, tokens))

    def refused(self, key: Key, tokens: int = 0) -> RateLimited:
        error = self.refusal(key, tokens)
        assert error is not None, "let in"
        return error

    def refusal(self, key: Key, tokens: int = 0) -> RateLimited | None:
        """Of a request that is over at once, or None where it was let in."""
        try:
            self.enter(key, tokens).leave(None)
        except RateLimited as error:
            return error
        return None


def run(make: Callable[[], object]) -> Pass:
    """What an async call returns that has nothing to wait for."""
    try:
        make().send(None)  # type: ignore[attr-defined]
    except StopIteration as done:
        result: Pass = done.value
        return result
    raise AssertionError("entering waited for something")


@pytest.fixture
def bench() -> Bench:
    return Bench()


def retry_after(error: RateLimited) -> int:
    return int(dict(error.headers)[b"retry-after"])


def test_a_key_without_limits_costs_nothing(bench: Bench) -> None:
    assert bench.enter(KEY, 10**9) is FREE
    assert FREE.headers == []
    FREE.leave(None)
    assert len(bench.limiter) == 0


def test_requests_across_the_turn_of_a_minute(bench: Bench) -> None:
    """A fixed minute would let twice the limit through within a second or two."""
    key = replace(KEY, requests_per_minute=5)
    bench.clock.sleep(59.5)
    for _ in range(5):
        bench.enter(key)
    bench.clock.sleep(1)
    assert retry_after(bench.refused(key)) == 59
    bench.clock.sleep(58.9)
    bench.refused(key)
    bench.clock.sleep(0.1)
    for _ in range(5):
        bench.enter(key)
    bench.refused(key)


@pytest.mark.parametrize("seed", range(20))
def test_never_more_than_the_limit_in_any_60_s_and_retry_after_is_right(seed: int) -> None:
    dice = random.Random(seed)  # noqa: S311 - repeatable, not secret
    bench, key = Bench(), replace(KEY, requests_per_minute=dice.choice([1, 7, 50]))
    let_in: list[int] = []
    for _ in range(2000):
        bench.clock.sleep(dice.choice([0, 0.001, 0.3, 0.9999, 5]))
        error = bench.refusal(key)
        if error is None:
            let_in.append(bench.clock.now)
            continue
        assert 1 <= retry_after(error) <= 60
        if dice.random() < 0.1:
            bench.clock.sleep(retry_after(error))
            assert bench.refusal(key) is None
            let_in.append(bench.clock.now)
    limit = key.requests_per_minute or 0
    apart = [b - a for a, b in zip(let_in, let_in[limit:], strict=False)]
    assert min(apart) >= 60 * SECOND


@pytest.mark.parametrize("seed", range(20))
def test_retry_after_is_right_for_tokens(seed: int) -> None:
    dice = random.Random(seed)  # noqa: S311 - repeatable, not secret
    bench, key = Bench(), replace(KEY, tokens_per_minute=1000)
    refusals = 0
    for _ in range(500):
        bench.clock.sleep(dice.choice([0, 0.01, 0.7, 3]))
        wanted = dice.choice([1, 10, 300, 1000, 5000])
        error = bench.refusal(key, wanted)
        if error is None:
            continue
        refusals += 1
        assert isinstance(error, TokensLimited)
        assert 1 <= retry_after(error) <= 60
        bench.clock.sleep(retry_after(error))
        bench.enter(key, wanted).leave(dice.choice([None, wanted, wanted // 2]))
    assert refusals > 50


def test_it_is_not_told_to_wait_longer_than_it_has_to(bench: Bench) -> None:
    key = replace(KEY, requests_per_minute=2)
    bench.enter(key)
    bench.clock.sleep(10)
    bench.enter(key)
    bench.clock.sleep(0.5)
    wait = retry_after(bench.refused(key))
    assert wait == math.ceil(49.5)
    bench.clock.sleep(wait - 1)
    bench.refused(key)


def test_tokens_are_reserved_at_once_and_settled_afterwards(bench: Bench) -> None:
    key = replace(KEY, tokens_per_minute=1000)
    first = bench.enter(key, 800)
    assert isinstance(bench.refused(key, 300), TokensLimited)
    first.leave(100)
    second = bench.enter(key, 900)
    assert dict(second.headers)[b"x-ratelimit-remaining-tokens"] == b"0"
    second.leave(None)
    bench.refused(key, 1)


def test_more_than_was_reserved_counts_too(bench: Bench) -> None:
    key = replace(KEY, tokens_per_minute=1000)
    bench.enter(key, 10).leave(5000)
    error = bench.refused(key, 1)
    assert dict(error.headers)[b"x-ratelimit-remaining-tokens"] == b"0"
    bench.enter(key, 0)  # what uses no tokens is not stopped by them
    bench.clock.sleep(retry_after(error))
    bench.enter(key, 1000)


def test_a_request_larger_than_the_limit_runs_alone(bench: Bench) -> None:
    key = replace(KEY, tokens_per_minute=1000)
    bench.enter(key, 1)
    wait = retry_after(bench.refused(key, 50_000))
    bench.clock.sleep(wait)
    bench.enter(key, 50_000).leave(40_000)
    assert retry_after(bench.refused(key, 1)) == 60


def test_what_has_left_the_window_is_not_corrected(bench: Bench) -> None:
    key = replace(KEY, tokens_per_minute=1000)
    slow = bench.enter(key, 900)
    bench.clock.sleep(61)
    bench.enter(key, 1000)
    slow.leave(5)
    bench.refused(key, 1)


def test_what_an_engine_never_saw_gives_its_tokens_back(bench: Bench) -> None:
    key = replace(KEY, tokens_per_minute=1000)
    for _ in range(50):
        bench.enter(key, 1000).leave(0)


def test_at_one_time(bench: Bench) -> None:
    key = replace(KEY, max_concurrency=2)
    first, _ = bench.enter(key), bench.enter(key)
    error = bench.refused(key)
    assert retry_after(error) == 1
    assert "max_concurrency" in error.message
    first.leave(None)
    assert bench.enter(key).headers == []
    bench.refused(key)


@pytest.mark.parametrize(
    ("full", "room"),
    [
        ("max_concurrency", ("requests_per_minute", "tokens_per_minute")),
        ("requests_per_minute", ("max_concurrency", "tokens_per_minute")),
        ("tokens_per_minute", ("max_concurrency", "requests_per_minute")),
    ],
)
def test_a_request_refused_by_one_limit_uses_none_of_the_others(
    bench: Bench, full: str, room: tuple[str, ...]
) -> None:
    narrow = replace(KEY, **{full: 1})
    bench.enter(narrow, 1)
    for _ in range(100):
        bench.refused(replace(narrow, **dict.fromkeys(room, 50)), 1)
    wide = replace(KEY, **dict.fromkeys(room, 50))
    for _ in range(49):
        bench.enter(wide, 1)
    bench.refused(wide, 1)


def test_headers_of_an_answer(bench: Bench) -> None:
    key = replace(KEY, requests_per_minute=3, tokens_per_minute=1000)
    bench.enter(key, 100)
    bench.clock.sleep(5)
    assert bench.enter(key, 200).headers == [
        (b"x-ratelimit-limit-requests", b"3"),
        (b"x-ratelimit-remaining-requests", b"1"),
        (b"x-ratelimit-reset-requests", b"1m0s"),
        (b"x-ratelimit-limit-tokens", b"1000"),
        (b"x-ratelimit-remaining-tokens", b"700"),
        (b"x-ratelimit-reset-tokens", b"1m0s"),
    ]


def test_headers_and_words_of_a_refusal(bench: Bench) -> None:
    key = replace(KEY, requests_per_minute=1, tokens_per_minute=1000)
    bench.enter(key, 0)
    bench.clock.sleep(50.5)
    error = bench.refused(key, 7)
    assert (error.status, error.type, error.code) == (429, "requests", "rate_limit_exceeded")
    assert error.headers == [
        (b"retry-after", b"10"),
        (b"x-ratelimit-limit-requests", b"1"),
        (b"x-ratelimit-remaining-requests", b"0"),
        (b"x-ratelimit-reset-requests", b"10s"),
        (b"x-ratelimit-limit-tokens", b"1000"),
        (b"x-ratelimit-remaining-tokens", b"1000"),
        (b"x-ratelimit-reset-tokens", b"0s"),
    ]
    assert "'team-a'" in error.message
    assert "1 requests per minute" in error.message


@pytest.mark.parametrize(
    ("nanoseconds", "text"),
    [
        (-5, b"0s"),
        (0, b"0s"),
        (1, b"1ms"),
        (SECOND // 1000 * 20, b"20ms"),
        (SECOND - 1, b"1s"),
        (SECOND, b"1s"),
        (SECOND + 1, b"2s"),
        (60 * SECOND, b"1m0s"),
        (360 * SECOND, b"6m0s"),
    ],
)
def test_durations_as_openai_writes_them(nanoseconds: int, text: bytes) -> None:
    assert told.duration(nanoseconds) == text


def test_counts_stay_when_limits_change_and_are_each_key_s_own(bench: Bench) -> None:
    key = replace(KEY, requests_per_minute=5)
    for _ in range(3):
        bench.enter(key)
    bench.refused(replace(key, requests_per_minute=3))
    bench.enter(replace(key, requests_per_minute=4))
    bench.enter(replace(key, name="team-b", requests_per_minute=1))


def test_counts_of_revoked_keys_do_not_pile_up(bench: Bench) -> None:
    running = bench.enter(replace(KEY, name="runs", max_concurrency=1))
    for number in range(1000):
        bench.enter(replace(KEY, name=f"k{number}", requests_per_minute=1)).leave(None)
        bench.clock.sleep(1)
    assert len(bench.limiter) <= 122
    bench.refused(replace(KEY, name="runs", max_concurrency=1))
    running.leave(None)


def test_a_window_is_small_whatever_is_counted_in_it() -> None:
    window, clock = Window(), Clock()
    for _ in range(100_000):
        window.move(clock())
        window.add(clock(), 1)
        clock.sleep(0.01)
        assert len(window) <= 61
    assert 6000 <= window.requests <= 6100


def test_entering_has_nothing_to_wait_for() -> None:
    async def whole() -> None:
        limiter = LocalLimiter()
        key = replace(KEY, requests_per_minute=1)
        (await limiter.enter(key, 1)).leave(1)
        with pytest.raises(RateLimited):
            await limiter.enter(key, 1)
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(whole())
