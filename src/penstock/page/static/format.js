// Numbers, times and keys as people read them.

const plain = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
const exact = new Intl.DateTimeFormat(undefined, {
  year: "numeric", month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit",
  hourCycle: "h23",
});

export function count(value) {
  if (value >= 1e6) return `${plain.format(value / 1e6)}M`;
  if (value >= 1e4) return `${plain.format(value / 1e3)}k`;
  return whole.format(value);
}

export function rate(value) {
  if (value === 0) return "0";
  if (value < 0.1) return "<0.1";
  return value < 10 ? plain.format(value) : count(value);
}

export function share(part, all) {
  if (!all) return "–";
  const percent = (100 * part) / all;
  if (percent === 0) return "0 %";
  if (percent < 0.01) return "<0.01 %";
  if (percent > 99.99 && percent < 100) return ">99.99 %";
  return `${percent < 1 || percent > 99 ? percent.toFixed(2) : percent.toFixed(1)} %`;
}

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "never";
  if (seconds < 1) return `${Math.max(1, Math.round(seconds * 1000))} ms`;
  const units = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
  const parts = [];
  let rest = Math.ceil(seconds);
  for (const [name, size] of units) {
    const amount = Math.floor(rest / size);
    rest -= amount * size;
    if (amount && parts.length < 2) parts.push(`${amount} ${name}`);
  }
  return parts.join(" ");
}

// `now` is the server's time: the clock of a browser may be wrong by an hour.
export function ago(at, now) {
  const age = Math.max(0, now - at);
  if (age < 10) return "just now";
  if (age < 60) return `${Math.round(age)} s ago`;
  if (age < 3600) return `${Math.round(age / 60)} min ago`;
  return exact.format(at * 1000);
}

export const timeOfDay = (at) => clock.format(at * 1000);
export const moment = (at) => exact.format(at * 1000);
export const utc = (at) => new Date(at * 1000).toISOString().replace("T", " ").replace(/\.\d+Z/, " UTC");

// Characters that are invisible or change the direction of text are shown as escapes: a key must
// not look like another one.
const HIDDEN = /[\u0000-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f\u2028-\u202f\u205f-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb]/g;

export const visible = (text) =>
  String(text).replace(HIDDEN, (each) => `\\u${each.charCodeAt(0).toString(16).padStart(4, "0")}`);

export function shortened(text, most = 48) {
  const letters = Array.from(visible(text));
  if (letters.length <= most) return letters.join("");
  const half = Math.floor((most - 1) / 2);
  return `${letters.slice(0, half).join("")}…${letters.slice(-half).join("")}`;
}
