-- Twin of stock.py. Words: end opened put-in spent
--
-- Exact: units are at most MOST_UNITS = 1e12, and 1000 times that is below 2^53. The end and the
-- time of opening are whole microseconds, so multiples of 1000 ns, and within 2^56 ns (2.3 years)
-- of now: `quota/stock_row.py` keeps to that.

local MOST_UNITS = 10 ^ 12
local UNFILLED = 60 * 10 ^ 9

local function read(text, at)
  return {most = MOST_UNITS, unit = 1}, at
end

local function load(p, row, value, at, shift)
  row.dirty = false
  if not value then
    row[1] = NONE
    row[2], row[3], row[4] = 0, 0, 0
    return true
  end
  if #value ~= at + 31 then
    return false
  end
  local finish, opened, put_in, spent = words('<dddd', value, at)
  row[1], row[2], row[3], row[4] = finish + shift, opened + shift, put_in, spent
  local valid = is_time(row[1]) and is_time(row[2]) and is_count(put_in) and is_count(spent)
  return valid and spent <= put_in or nil
end

local function save(p, row, before)
  return pack('<c0dddd', before, row[1] + elapsed, row[2] + elapsed, row[3], row[4])
end

local function decide(p, row, cost, now, extra, take, out)
  local opened, left, spent = now, 0, 0
  out.unit = 1
  out.delay = 0
  out.reset = 0
  if row[1] > now then
    opened, spent = row[2], row[4]
    left = row[3] - spent
    out.reset = row[1] - now
  end
  out.mark = opened
  if cost <= left then
    if take then
      left = left - cost
      row[4] = spent + cost
      row.dirty = true
    end
    out.allowed = true
    out.retry = 0
    out.room = left
    return true
  end
  out.allowed = false
  out.retry = spent * 1000
  out.room = left
  return false
end

local function charge(p, row, cost, now)
  if row[1] <= now then
    row[1], row[2], row[3], row[4] = now + UNFILLED, since_1970(cost), 0, 0
    row.dirty = true
  end
end

local function refund(p, row, cost, now, mark, kept)
  if row[1] <= now or (mark ~= nil and mark ~= row[2]) then
    return
  end
  if kept < 0 then
    row[1] = since_1970(-kept)
    row[3] = math.max(row[3], math.min(cost, MOST_UNITS))
  else
    row[4] = row[4] > cost and row[4] - cost or 0
  end
  row.dirty = true
end

return {
  letter = 'K', read = read, load = load, save = save,
  decide = decide, charge = charge, refund = refund,
}
