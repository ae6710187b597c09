-- The bank: grants and takes back leases on the rows that direct decisions use. Twin of bank.py,
-- which says how; driven by the same policies and rows as batch.lua.
--
-- KEYS     two a message: the key's row, and the records of its leases
-- ARGV[1]  where in ARGV the messages begin
-- ARGV     then for each limit two: its policy, packed; and its terms as doubles: burst horizon
--          cover ttl, 1 if it refills, and how many units may be out
-- ARGV     then the messages: 6 doubles, P granted spent returned demand want, and the holder's
--          name; P is where in ARGV the policy is
--
-- Answers the server's time in microseconds, then for each message
--   8 doubles: granted life wait room out holders mark-now end     life and wait in microseconds
--              (0 0 0 room 0 holders mark-now 0 if the holder claims what cannot be booked)
--   'refresh' where the policy's windows do not cover the server's time; nothing was done
--   an error where a value is not one of ours, or could not be written
--
-- The records of a key are a hash. Each holder has a field with its name: as doubles granted,
-- spent, returned, demand, end and last, the latter two in microseconds since 1970. The field ''
-- has the sums: out, demand, holders, when they were last computed anew, and the latest end. So a
-- call reads two fields, however many holders there are.
--
-- Exact: units and their products with the interval are below 2^53, as law.terms_of demands.

local RECORD, SUMS, REPLY = '<dddddd', '<ddddd', '<dddddddd'
local floor, max, min = math.floor, math.max, math.min

local function read_record(text)
  if #text ~= 48 then
    return nil
  end
  local r = {}
  r.granted, r.spent, r.returned, r.demand, r.finish, r.last = words(RECORD, text)
  r.out = r.granted - r.spent - r.returned
  if r.out >= 0 and r.demand >= 0 and r.finish == r.finish then
    return r
  end
end

-- Compute the sums anew, and forget the records that have ended. False if one makes no sense.
local function sweep(key, sums)
  sums.out, sums.demand, sums.holders, sums.swept, sums.finish = 0, 0, 0, time_us, 0
  local fields = pcall('HGETALL', key)
  if fields.err then
    return false
  end
  local ended = {}
  for at = 1, #fields, 2 do
    if fields[at] ~= '' then
      local r = read_record(fields[at + 1])
      if not r then
        return false
      elseif r.finish > time_us then
        sums.out, sums.demand = sums.out + r.out, sums.demand + r.demand
        sums.holders, sums.finish = sums.holders + 1, max(sums.finish, r.finish)
      else
        ended[#ended + 1] = fields[at]
      end
    end
  end
  for at = 1, #ended, 1000 do
    pcall('HDEL', key, unpack(ended, at, min(at + 999, #ended)))
  end
  return true
end

local function drop(sums, r)
  sums.out, sums.demand = sums.out - r.out, sums.demand - r.demand
  sums.holders = sums.holders - 1
end

-- The sums, and the holder's record if it is live; nil and an error if they are not ours.
local function read_records(key, name, ttl)
  local sums = {out = 0, demand = 0, holders = 0, swept = time_us, finish = 0}
  local fields = pcall('HMGET', key, '', name)
  if fields.err then
    return nil, fields
  end
  local text, own = fields[1], fields[2]
  if not text then
    return sums
  end
  local r = own and read_record(own) or nil
  if #text ~= 40 or (own and not r) then
    return nil, damaged(key)
  end
  sums.exists = true
  sums.out, sums.demand, sums.holders, sums.swept, sums.finish = words(SUMS, text)
  local since = (time_us - sums.swept) * 1000
  if since >= 0 and since < ttl / 4 and is_count(sums.out) and is_count(sums.demand) then
    if r and r.finish <= time_us then
      drop(sums, r) -- what it has not spent is dead, and is never credited
      r = nil
    end
  elseif sweep(key, sums) then
    if r and r.finish <= time_us then
      r = nil
    end
  else
    return nil, damaged(key)
  end
  return sums, r
end

-- Write the sums, and the holder's record or, if it has none any more, nothing in its place.
local function write_records(key, name, sums, r)
  if sums.holders <= 0 then
    return sums.exists and forget(key)
  end
  if r then
    sums.finish = max(sums.finish, r.finish)
  end
  local text = pack(SUMS, sums.out, sums.demand, sums.holders, sums.swept, sums.finish)
  local done
  if r then
    done = pcall('HSET', key, '', text, name,
      pack(RECORD, r.granted, r.spent, r.returned, r.demand, r.finish, r.last))
  else
    pcall('HDEL', key, name)
    done = pcall('HSET', key, '', text)
  end
  if type(done) == 'table' then
    return done
  end
  pcall('PEXPIRE', key, max(0, math.ceil((sums.finish - time_us) / 1000)) + 2 + LINGER)
end

-- What is left in the row, and its mark: twin of rows.py.
local function look(p, row, out)
  p.rule.decide(p, row, 1, 0, 0, false, out)
  return out.room, out.mark
end

local function divide(t, m, free, held, sums, elapsed, interval)
  local total = sums.demand
  local share = total > 0 and m.demand / total or 1
  local most = max(1, floor(t.most * max(share, 0.25 / sums.holders)) - held)
  local useful = min(m.want, most)
  if free >= total * t.horizon / 1000000000 then
    return min(useful, free), useful
  end
  local part
  if t.refills then
    local back = min(elapsed, 4 * t.horizon) / interval
    part = share * (back + max(0, free - t.horizon / interval))
  else
    part = share * free
  end
  return min(useful, free, max(1, floor(part))), useful
end

-- Bring the holder's record up to date; nil if it claims more than can be out,
-- or be booked.
local function settle(p, t, row, sums, known, m, out)
  local r, claim = known, nil
  if r then
    claim = max(0, m.granted - r.granted)
  else
    claim = m.granted - m.spent - m.returned
    r = {
      granted = m.granted, spent = m.spent, returned = m.returned, demand = 0, out = 0,
      last = time_us - floor(t.horizon / 1000),
    }
  end
  if claim > 0 then
    local room = look(p, row, out)
    if sums.out + claim > t.burst or claim * p.unit > room + t.burst * p.unit then
      if known then
        drop(sums, known)
      end
      return nil
    end
    p.rule.charge(p, row, claim, 0)
    r.granted = m.granted
  end
  if not known then
    sums.holders = sums.holders + 1
  end
  local back = max(0, m.returned - r.returned)
  r.returned = r.returned + back
  r.spent = max(r.spent, m.spent)
  local before = r.out
  r.out = r.granted - r.spent - r.returned
  sums.out = sums.out + r.out - before
  sums.demand = sums.demand + m.demand - r.demand
  r.demand = m.demand
  if back > 0 and row[1] > 0 then
    if t.refills then
      row[1] = row[1] - back * p.unit
    else
      row[2] = max(0, row[2] - back)
    end
    row.dirty = true
  end
  return r
end

-- Set until when the holder may spend what it has; never earlier than it was told.
local function vouch(p, t, row, r, vouched, total_out, out)
  local finish = time_us + floor(t.ttl / 1000)
  if r.out > 0 and t.refills then
    local least = t.cover + total_out * p.unit
    if row[1] < least then
      row[1] = least
      row.dirty = true
    end
    finish = min(finish, time_us + floor((row[1] - total_out * p.unit) / 1000))
  elseif r.out > 0 then
    local _, mark = look(p, row, out)
    finish = min(finish, time_us + floor(mark / 1000))
  end
  if row.finish and row.burst + row.rate > 0 then
    finish = min(finish, time_us + floor(row.finish / 1000)) -- the site's share ends then
  end
  r.finish = vouched and max(finish, r.finish) or finish
end

local function trade(p, t, row, sums, known, m)
  local out = {}
  local vouched = known ~= nil and known.out > 0
  local r = settle(p, t, row, sums, known, m, out)
  local room, mark = look(p, row, out)
  if not r then
    return pack(REPLY, 0, 0, 0, room, 0, sums.holders, mark, 0)
  end
  local free = floor(room / p.unit)
  if t.refills then
    free = min(free, floor((t.burst * p.unit - t.cover) / p.unit) - sums.out)
  end
  free = max(0, free)
  local got, useful = divide(t, m, free, r.out, sums, (time_us - r.last) * 1000, p.unit)
  if got > 0 then
    p.rule.decide(p, row, got, 0, 0, HIT, out)
    r.granted = r.granted + got
    r.out = r.out + got
    r.last = time_us
    sums.out = sums.out + got
  end
  vouch(p, t, row, r, vouched, sums.out, out)

  room, mark = look(p, row, out)
  local wait, finish = 0, 0
  if t.refills then
    if got < useful then
      wait = t.horizon
    end
    mark = mark - sums.out * p.unit
  else
    finish = mark
    if m.want > 0 and free - got < 1 then
      wait = min(10 * t.horizon, finish)
    end
  end
  local life = r.out > 0 and r.finish - time_us or 0
  local granted, total_out, holders = r.granted, sums.out, sums.holders
  if m.want == 0 and r.out == 0 then
    drop(sums, r)
    r, holders = nil, sums.holders
  end
  wait = math.ceil(wait / 1000)
  if row.finish then
    room = floor(room * p.whole / p.unit) -- as instances count, in the interval of the limit
  end
  return pack(REPLY, granted, life, wait, room, total_out, holders, mark, finish), r
end

local terms = {}
local function terms_at(place)
  local t = terms[place]
  if not t then
    t = {}
    local refills
    t.burst, t.horizon, t.cover, t.ttl, refills, t.most = words('<dddddd', ARGV[place])
    t.refills = refills == 1
    terms[place] = t
  end
  return t
end

local function answer(text, row_key, records_key)
  local m, place = {}, nil
  place, m.granted, m.spent, m.returned, m.demand, m.want = words('<dddddd', text)
  local name, t, p = text:sub(49), terms_at(place + 1), policy_at(place)
  if p.outdated then
    return 'refresh'
  end
  local row = p.row
  local value, failed = fetch(p, row, row_key)
  if value == nil then
    return failed
  end
  if row.finish then
    -- A site's bucket: see regional_bucket.lua. It has the numbers of its floor and its share.
    p.unit = p.interval
    t = setmetatable({burst = p.most}, {__index = t})
  end
  local sums, known = read_records(records_key, name, t.ttl)
  if not sums then
    return known
  end
  local reply, r = trade(p, t, row, sums, known, m)
  failed = row.dirty and store(p, row, row_key, value)
  return failed or write_records(records_key, name, sums, r) or reply
end

local answers, at = {time_us}, tonumber(ARGV[1])
for index = 1, #KEYS, 2 do
  answers[#answers + 1] = answer(ARGV[at], KEYS[index], KEYS[index + 1])
  at = at + 1
end
return answers
