-- Twin of base.py and words.py: what the twins have in common.
--
-- A Lua number is a double: whole numbers are exact below 2^53, and nanoseconds
-- since 1970 are not. So here EVERY TIME IS RELATIVE TO NOW, in nanoseconds: now is
-- 0, the past negative. The algorithms do not mind, they only compare and subtract.
--
-- Exact: within 2^53 ns (104 days) of now. Beyond, up to 2^56 ns (2.3 years), for
-- multiples of 8 ns, which every whole microsecond is; `script.policy` rounds
-- longer durations up to such multiples and refuses what is longer still. (Only a clock
-- that steps back can bring a time further away: then it may be some ns off, and is cut.)
--
-- Quotients: math.floor(a / b) is exact for whole 0 <= a < 2^53 and whole b > 0: it
-- could only be wrong by rounding up to a whole number, from nearer than a / b can come.
--
-- A key's value is text: the second b (since 1970) at which it was written, then the
-- words of its row; times as nanoseconds since b, '-' where the Python row has 0 for
-- 'none'. A row is a table here: row[1] is the time at which it means nothing any more.
--
-- Each rule has: prepare(p) once a call, false if the policy does not cover the server's
-- time; blank(p), a key that was never seen; load(p, w, at, shift), the row from words
-- w[at] on, or nil if it is none; save(p, row, w), its words added to w; and
-- decide, charge, refund as in Python, with `now` for calls about a later moment.
-- They set row.dirty when there is something to write. The driver is batch.lua.

local NONE = -math.huge           -- a time that is no time: earlier than any other
local floor, ceil = math.floor, math.ceil
local format = string.format
local loaders, rules = {}, {}     -- each twin is run when a policy first asks for its rule
local elapsed = now_us * 1000     -- nanoseconds since the second now_s began

local function rule_of(p)
  local rule = rules[p.rule]
  if not rule then
    loaders[p.rule]()
    rule = rules[p.rule]
  end
  return rule
end

-- What tostring and .. print is not exact: '%.0f' is.
local function whole(number)
  return format('%.0f', number)
end

local function time_word(time)
  if time == NONE then
    return '-'
  end
  return format('%.0f', time + elapsed)
end

-- The time that lies `microseconds` after 1970. Exact below 2^53 (in the year 2255).
local function since_1970(microseconds)
  return (microseconds - (now_s * 1000000 + now_us)) * 1000
end
