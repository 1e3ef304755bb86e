"""Scripts for slots and the waiting room of all workers; see scripts.py."""

from __future__ import annotations

from typing import Final

from gateway.shared.scripts import ALIVE, COMMON, Script

# session, slots in all, room in the queue in all → 1 runs, 0 no room, else waits: since when
TAKE: Final = Script(
    COMMON
    + ALIVE
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
    COMMON
    + ALIVE
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
