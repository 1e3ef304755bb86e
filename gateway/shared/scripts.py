"""Lua that runs inside Valkey: each script is one atomic step. Times are Valkey's, microseconds.

Sessions are here, slots in slots.py, keys' limits in windows.py.

    gw:live        zset  session → until when it lives without a heartbeat
    gw:slots       hash  session → requests that run
    gw:wait        hash  session → requests that wait for a slot
    gw:head        hash  session → since when its longest waiter waits, and when it said so
    gw:run:NAME    hash  session → requests of that key that run or wait
    gw:window:NAME       the last 60 s of that key, in steps (see limits/window.py)

Each count belongs to a session, and only sessions in gw:live are summed: what a dead worker held
is free once its session has ended. A script called by a session that has ended does nothing.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Final


@dataclass(frozen=True)
class Script:
    """`sha`: by which Valkey knows it."""

    text: str
    sha: str = field(init=False)

    def __post_init__(self) -> None:
        digest = hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()
        object.__setattr__(self, "sha", digest)


COMMON: Final = """
local me = ARGV[1]
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
redis.call('ZREMRANGEBYSCORE', 'gw:live', '-inf', now)

local function live(session)
  return redis.call('ZSCORE', 'gw:live', session)
end

local function add(hash, session, count)
  if count ~= 0 and redis.call('HINCRBY', hash, session, count) <= 0 then
    redis.call('HDEL', hash, session)
  end
end

local function total(hash)
  local sum = 0
  local found = redis.call('HGETALL', hash)
  for i = 1, #found, 2 do
    if live(found[i]) then
      sum = sum + tonumber(found[i + 1])
    else
      redis.call('HDEL', hash, found[i])
    end
  end
  return sum
end
"""
ALIVE: Final = """
if not live(me) then
  return redis.error_reply('STALE this session has ended')
end
"""
# A request of a key may run for hours; whatever happens, nothing is kept for more than a day.
KEPT_MS: Final = 86_400_000

# session, the one before it ('' for none), life in µs, running, waiting, then name, count, …
# The earlier session ends here, so a late command of its connection changes nothing.
REGISTER: Final = Script(
    COMMON
    + f"""
redis.call('ZREM', 'gw:live', ARGV[2])
redis.call('ZADD', 'gw:live', now + ARGV[3], me)
add('gw:slots', me, tonumber(ARGV[4]))
add('gw:wait', me, tonumber(ARGV[5]))
for i = 6, #ARGV, 2 do
  add('gw:run:' .. ARGV[i], me, tonumber(ARGV[i + 1]))
  redis.call('PEXPIRE', 'gw:run:' .. ARGV[i], {KEPT_MS})
end
return 1
"""
)

# session, life in µs
BEAT: Final = Script(
    COMMON
    + ALIVE
    + """
redis.call('ZADD', 'gw:live', now + ARGV[2], me)
"""
)

# name of a dead worker: its sessions are NAME.1, NAME.2, …
BURY: Final = Script(
    COMMON
    + """
for _, session in ipairs(redis.call('ZRANGE', 'gw:live', 0, -1)) do
  if string.sub(session, 1, #me + 1) == me .. '.' then
    redis.call('ZREM', 'gw:live', session)
  end
end
"""
)
