"""Lua that runs inside Valkey: each script is one atomic step. Times are Valkey's, microseconds.

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


_COMMON: Final = """
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
_ALIVE: Final = """
if not live(me) then
  return redis.error_reply('STALE this session has ended')
end
"""
# A request of a key may run for hours; whatever happens, nothing is kept for more than a day.
_KEPT_MS: Final = 86_400_000

# session, the one before it ('' for none), life in µs, running, waiting, then name, count, …
# The earlier session ends here, so a late command of its connection changes nothing.
REGISTER: Final = Script(
    _COMMON
    + f"""
redis.call('ZREM', 'gw:live', ARGV[2])
redis.call('ZADD', 'gw:live', now + ARGV[3], me)
add('gw:slots', me, tonumber(ARGV[4]))
add('gw:wait', me, tonumber(ARGV[5]))
for i = 6, #ARGV, 2 do
  add('gw:run:' .. ARGV[i], me, tonumber(ARGV[i + 1]))
  redis.call('PEXPIRE', 'gw:run:' .. ARGV[i], {_KEPT_MS})
end
return 1
"""
)

# session, life in µs
BEAT: Final = Script(
    _COMMON
    + _ALIVE
    + """
redis.call('ZADD', 'gw:live', now + ARGV[2], me)
"""
)

# name of a dead worker: its sessions are NAME.1, NAME.2, …
BURY: Final = Script(
    _COMMON
    + """
for _, session in ipairs(redis.call('ZRANGE', 'gw:live', 0, -1)) do
  if string.sub(session, 1, #me + 1) == me .. '.' then
    redis.call('ZREM', 'gw:live', session)
  end
end
"""
)

# session, slots in all, room in the queue in all → 1 runs, 0 no room, else waits: since when
TAKE: Final = Script(
    _COMMON
    + _ALIVE
    + """
local waiting = total('gw:wait')
if waiting == 0 and total('gw:slots') < tonumber(ARGV[2]) then
  add('gw:slots', me, 1)
  return 1
end
if waiting < tonumber(ARGV[3]) then
  add('gw:wait', me, 1)
  return now
end
return 0
"""
)

# session, slots given back, waiters that left, since when the first waiter waits, slots in all
# → how many of this session's waiters run now. Who waits longer in another worker goes first, as
# long as that worker has asked within half a second; it does every few milliseconds.
PUMP: Final = Script(
    _COMMON
    + _ALIVE
    + """
add('gw:slots', me, -tonumber(ARGV[2]))
add('gw:wait', me, -tonumber(ARGV[3]))
local mine = tonumber(redis.call('HGET', 'gw:wait', me) or '0')
if mine == 0 then
  redis.call('HDEL', 'gw:head', me)
  return 0
end
local born = tonumber(ARGV[4])
redis.call('HSET', 'gw:head', me, string.format('%.0f %.0f', born, now))
local free = tonumber(ARGV[5]) - total('gw:slots')
if free <= 0 then
  return 0
end
local waiting, older = mine, 0
local heads = redis.call('HGETALL', 'gw:head')
for i = 1, #heads, 2 do
  local other = heads[i]
  local since, seen = string.match(heads[i + 1], '(%d+) (%d+)')
  local count = tonumber(redis.call('HGET', 'gw:wait', other) or '0')
  if not live(other) then
    redis.call('HDEL', 'gw:head', other)
  elseif other ~= me and count > 0 and now - seen < 500000 then
    waiting = waiting + count
    since = tonumber(since)
    if since < born or (since == born and other < me) then
      older = older + 1
    end
  end
end
local spare = free - older
if spare <= 0 then
  return 0
end
local granted = math.min(mine, math.max(1, math.floor(spare * mine / waiting)))
add('gw:wait', me, -granted)
add('gw:slots', me, granted)
return granted
"""
)

_WINDOW: Final = """
local key = 'gw:window:' .. ARGV[2]
local steps = {}
local requests, tokens = 0, 0
local packed = redis.call('GET', key)
for _, step in ipairs(packed and cmsgpack.unpack(packed) or {}) do
  if step[3] > now then
    steps[#steps + 1] = step
    requests = requests + step[4]
    tokens = tokens + step[5]
  end
end

local function keep()
  redis.call('SET', key, cmsgpack.pack(steps), 'PX', 62000)
end
"""

# session, name, requests at one time, requests, tokens per minute ('' for no limit), tokens to
# reserve → {which limit has no room (0 none, 1 at one time, 2 requests, 3 tokens), step,
# requests and tokens that count now, µs until there is room, µs until nothing counts}
# A step: {name, closes, leaves, requests, tokens}.
ENTER: Final = Script(
    _COMMON
    + _ALIVE
    + _WINDOW
    + f"""
local run = 'gw:run:' .. ARGV[2]
local at_once, per_minute, budget = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local reserve = tonumber(ARGV[6])

local function refuse(limit, excess, field)
  local wait = 0
  for _, step in ipairs(steps) do
    if excess <= 0 then break end
    excess = excess - step[field]
    wait = step[3] - now
  end
  return {{limit, '', requests, tokens, wait, #steps > 0 and steps[#steps][3] - now or 0}}
end

if at_once and total(run) >= at_once then
  return refuse(1, 0, 4)
end
if per_minute and requests >= per_minute then
  return refuse(2, requests - per_minute + 1, 4)
end
if budget and reserve > 0 and tokens + reserve > budget then
  return refuse(3, tokens + reserve - budget, 5)
end
add(run, me, 1)
redis.call('PEXPIRE', run, {_KEPT_MS})
local step = steps[#steps]
if not step or step[2] <= now then
  step = {{string.format('%.0f', now), now + 1000000, 0, 0, 0}}
  steps[#steps + 1] = step
end
step[3] = now + 60000000
step[4] = step[4] + 1
step[5] = step[5] + reserve
keep()
return {{0, step[1], requests + 1, tokens + reserve, 0, 60000000}}
"""
)

# session, name, step ('' when it was let in without Valkey), tokens to add to it (may be negative)
LEAVE: Final = Script(
    _COMMON
    + _ALIVE
    + """
add('gw:run:' .. ARGV[2], me, -1)
local correction = tonumber(ARGV[4])
if ARGV[3] == '' or correction == 0 then
  return
end
"""
    + _WINDOW
    + """
for _, step in ipairs(steps) do
  if step[1] == ARGV[3] then
    step[5] = step[5] + correction
    keep()
  end
end
"""
)

ALL: Final = (REGISTER, BEAT, BURY, TAKE, PUMP, ENTER, LEAVE)
