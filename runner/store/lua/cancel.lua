-- Asks that a run ends as cancelled: a durable flag that every later act respects.
-- KEYS 1 run  2 due  3 events
-- ARGV 1 run id
-- Returns {OK, state, epoch} | {TERMINAL, state, epoch} | {UNKNOWN}
-- Why: a flag and not a message, because a message can be lost; the sweep finds it even when everybody else died.
local held = redis.call('HMGET', KEYS[1], 'state', 'epoch', 'cancel_at')
if not held[1] then return {UNKNOWN} end
if ENDED[held[1]] then return {TERMINAL, held[1], held[2]} end
if not held[3] then
  local now = int(clock())
  redis.call('HSET', KEYS[1], 'cancel_at', now)
  if held[1] ~= 'running' then redis.call('ZADD', KEYS[2], now, ARGV[1]) end
  note(KEYS[3], 'cancel-requested', held[2], '')
end
return {OK, held[1], held[2]}
