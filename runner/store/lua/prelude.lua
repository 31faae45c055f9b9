-- Shared words of every act: the server's clock, whole numbers, the log of transitions, the codes of an answer.
-- KEYS none
-- ARGV none
-- Returns nothing: this text stands in front of each act when it is loaded.
-- Why one clock: what a decision reads was stamped here, so no two machines' clocks are ever compared.
local OK, FENCED, CANCELLED, TERMINAL, GAP, UNKNOWN, TAKEN, CONFLICT = 0, 1, 2, 3, 4, 5, 6, 7
local ENDED = {completed = true, failed = true, cancelled = true, sealed = true}
local function int(n) return string.format('%.0f', n) end
local function clock()
  local t = redis.call('TIME')
  return t[1] * 1000 + math.floor(t[2] / 1000)
end
local function note(events, what, epoch, detail)
  redis.call('XADD', events, 'MAXLEN', '~', 256, '*', 'at', int(clock()), 'what', what, 'epoch', epoch, 'detail', detail)
end
-- When a running run must be looked at next: its lease's end or the end of its silence window, whichever is first.
local function next_look(lease_until, progress_at, window)
  if window and window ~= '' then
    local silent_until = tonumber(progress_at) + tonumber(window) + 1
    if silent_until < lease_until then return int(silent_until) end
  end
  return int(lease_until)
end
