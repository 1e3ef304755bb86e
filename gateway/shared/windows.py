"""Scripts for a key's limits over all workers: the rules of limits/window.py; see scripts.py."""

from __future__ import annotations

from typing import Final

from gateway.shared.scripts import ALIVE, COMMON, KEPT_MS, Script

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
    COMMON
    + ALIVE
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
redis.call('PEXPIRE', run, {KEPT_MS})
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
    COMMON
    + ALIVE
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
