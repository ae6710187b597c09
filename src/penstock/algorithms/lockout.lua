-- Twin of lockout.py. Words: end until, then the guarded algorithm's own
--
-- Exact: the lockout is below 2^55, a multiple of 8 where it is above 2^53. An open door
-- is NONE where Python has 0.

local function read(text, at, read_inner)
  local length, after = words('<d', text, at)
  local inner
  inner, after = read_inner(text, after)
  return {
    most = inner.most, unit = inner.unit, length = length, inner = inner,
    guarded = inner.rule, outdated = inner.outdated,
  }, after
end

local function load(p, row, value, at, shift)
  row.dirty = false
  row.inner = row.inner or {}
  if not value then
    row[1], row[2] = NONE, NONE
    return p.guarded.load(p.inner, row.inner, value)
  end
  if #value < at + 15 then
    return false
  end
  local finish, opens, after = words('<dd', value, at)
  row[1], row[2] = finish + shift, opens + shift
  if not (is_time(row[1]) and is_time(row[2])) then
    return nil
  end
  return p.guarded.load(p.inner, row.inner, value, after, shift)
end

local function save(p, row, before)
  local own = pack('<c0dd', before, row[1] + elapsed, row[2] + elapsed)
  return p.guarded.save(p.inner, row.inner, own)
end

-- When the door opens, or nil if it is open; a step back does not prolong it.
local function locked_until(p, row, now)
  if row[1] <= now or row[2] <= now then
    return nil
  end
  return row[2] < now + p.length and row[2] or now + p.length
end

local function remember(row, opens)
  local finish = opens > row.inner[1] and opens or row.inner[1]
  if row.inner.dirty or row[1] ~= finish or row[2] ~= opens then
    row[1] = finish
    row[2] = opens
    row.dirty = true
  end
end

local function decide(p, row, cost, now, extra, take, out)
  local opens = locked_until(p, row, now)
  if opens == nil then
    local answer = p.guarded.decide(p.inner, row.inner, cost, now, extra, take, out)
    if answer or take ~= HIT then
      if take then
        remember(row, NONE)
      end
      return answer
    end
    opens = now + p.length
  end
  if take then
    if row[2] > opens then
      -- The clock stepped back. Charging nothing brings the inner row up to now.
      p.guarded.charge(p.inner, row.inner, 0, now)
    end
    remember(row, opens)
  end
  -- Would it be allowed when the door opens? Ask for then.
  if p.guarded.decide(p.inner, row.inner, cost, opens, extra, false, out) then
    out.retry = opens - now
  else
    out.retry = out.retry + opens - now
  end
  -- As good as new is what the guarded one will be by then, or some time after.
  out.reset = out.reset + opens - now
  out.allowed = false
  out.overrun = false
  out.delay = 0
  out.room = 0
  return false
end

local function charge(p, row, cost, now)
  if row[1] <= now then
    row[2] = NONE
  end
  p.guarded.charge(p.inner, row.inner, cost, now)
  remember(row, row[2])
end

local function refund(p, row, cost, now, mark, kept)
  if row[1] > now then
    p.guarded.refund(p.inner, row.inner, cost, now, mark, kept)
    remember(row, row[2])
  end
end

return {
  letter = 'L', read = read, load = load, save = save,
  decide = decide, charge = charge, refund = refund,
}
