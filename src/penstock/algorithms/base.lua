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
-- A key's value is the rule's letter, the second b (since 1970) at which it was written,
-- and the words of its row, times as nanoseconds since b; all but the letter as doubles,
-- low byte first. As text, a bucket's decision would cost a quarter more. A look at one:
--   EVAL "local _, b, tat = struct.unpack('<Bdd', redis.call('GET', KEYS[1]))
--         return string.format('%.0f s + %.0f ns', b, tat)" 1 key
--
-- A row is a table: row[1] is the time at which it means nothing any more. Each rule has:
--   read(text, at, inner)     its policy from its packed form, and where that ends; `inner`
--                             reads another one's that lies within
--   load(p, row, value, at, shift)   fill the row from the words at `at`, for a key without
--                             a value as one never seen; false if they are not such words,
--                             nil if they are, with numbers that make no sense
--   save(p, row, before)      the bytes `before`, and the row's words behind them
--   decide, charge, refund    as in Python, with `now` for calls about a later moment
-- They set row.dirty when there is something to write, and row.damaged when they come upon a
-- number that makes no sense. The driver is batch.lua.

-- What `decide` is asked to do; a mere look is false.
local HIT, ATTEMPT, RESERVE = 1, 2, 3
local NONE = -math.huge           -- a time that is no time: earlier than any other
local pack, words = struct.pack, struct.unpack
local elapsed = now_us * 1000     -- nanoseconds since the second now_s began
local time_us = now_s * 1000000 + now_us

-- Anybody may have written to the server. What cannot be a time or a count of ours, such as NaN
-- (which is not equal to itself), shows by one of these.
local FURTHEST, MOST_COUNT = 2 ^ 58, 2 ^ 53
local function is_time(time)
  return time == NONE or (time > -FURTHEST and time < FURTHEST and time % 1 == 0)
end
local function is_count(count)
  return count >= 0 and count <= MOST_COUNT and count % 1 == 0
end

-- The time that lies `microseconds` after 1970. Exact below 2^53 (in the year 2255).
local function since_1970(microseconds)
  return (microseconds - time_us) * 1000
end
