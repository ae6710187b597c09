// Everything at a glance: figures, the last minutes, what needs attention, and a row for each rule.

import { html, useEffect, useState } from "/page/vendor/preact-htm.js";
import { ask } from "./api.js";
import { Spark, Timeline } from "./chart.js";
import { ago, count, duration, rate, share, timeOfDay, visible } from "./format.js";
import { Key } from "./key.js";
import { Rule } from "./rule.js";

const ROWS = 100;

const last = (values, seconds) => {
  const known = values.slice(-seconds).filter((each) => each !== null);
  return known.length ? known.reduce((a, b) => a + b, 0) / known.length : 0;
};
const sum = (values) => values.reduce((a, b) => a + (b ?? 0), 0);

export const marksOf = (changes) =>
  changes.map((each) => ({ at: each.at, text: `${each.what} ${each.after ?? "removed"}` }));

export function Overview({ live, changes, health, canChange, now, rest }) {
  const [span, setSpan] = useState("15m");
  const [day, setDay] = useState(null);
  const [sort, setSort] = useState("attention");
  const [filter, setFilter] = useState("");
  const [shown, setShown] = useState(ROWS);
  useEffect(() => {
    if (span !== "24h") return undefined;
    let ended = false;
    const load = async () => {
      try { const data = await ask("/v1/history", { query: { span: "24h" } }); if (!ended) setDay(data); } catch { /* kept */ }
    };
    load();
    const timer = setInterval(load, 30_000);
    return () => { ended = true; clearInterval(timer); };
  }, [span]);
  if (!live) return html`<p class="empty">Loading…</p>`;
  const { totals } = live;
  const asked = last(totals.allowed, 10) + last(totals.near_limit, 10) + last(totals.refused, 10) + last(totals.shadowed, 10);
  const refused = last(totals.refused, 10);
  const before = last(totals.refused.slice(0, -60), 840);
  const everything = sum(totals.allowed) + sum(totals.near_limit) + sum(totals.refused) + sum(totals.shadowed);
  const rules = ordered(live.rules.filter((row) => visible(row.rule).toLowerCase().includes(filter.toLowerCase())), sort);
  const open = rest ? live.rules.find((row) => row.rule === rest) : null;
  return html`<section>
    <h1 class="visually-hidden">Overview</h1>
    <div class="figures">
      <${Figure} value=${`${rate(asked)}/s`} label="decisions" />
      <${Figure} value=${share(everything - sum(totals.refused), everything)} label="allowed, 15 min" kind="allowed" />
      <${Figure} value=${`${rate(refused)}/s`} label="refused" kind=${refused ? "refused" : ""}
        note=${refused > 1 && before > 0 && refused > 2 * before ? `▲ ${rate(refused / before)} x the last 15 min` : ""} />
      <${Figure} value=${`${rate(last(totals.near_limit, 10))}/s`} label="near the limit" />
      <${Figure} value=${count(sum(totals.degraded))} label="degraded, 15 min" kind=${sum(totals.degraded) ? "near" : ""} />
    </div>
    ${everything === 0 && span === "15m" ? html`<${Nothing} />` : html`<div class="split">
      <div class="panel"><div class="row"><h2>${span === "15m" ? "Last 15 minutes" : "Last 24 hours"}</h2>
        <div class="segments" role="group" aria-label="Span">${["15m", "24h"].map((each) => html`
          <button aria-pressed=${span === each} onClick=${() => setSpan(each)}>${each === "15m" ? "15 min" : "24 h"}</button>`)}</div></div>
        <${Timeline} key=${span} data=${span === "15m" ? totals : day} marks=${marksOf(changes)} title=${`Decisions of the last ${span}`} /></div>
      <${Attention} rules=${live.rules} health=${health} changes=${changes} now=${now} />
    </div>`}
    <div class="row"><h2>Rules <span class="quiet">${live.rules.length}</span></h2>
      <input type="search" placeholder="Filter" aria-label="Filter the rules" value=${filter} onInput=${(event) => setFilter(event.target.value)} />
      <label class="inline">Sort by <select value=${sort} onChange=${(event) => setSort(event.target.value)}>
        <option value="attention">what needs attention</option><option value="rate">traffic</option><option value="name">name</option></select></label></div>
    ${live.rules.length === 0 ? html`<p class="empty">There are no rules: everything is allowed. Start the service with <code>--rules PATH</code>.</p>` : html`
    <div class=${open ? "with-panel" : ""}>
      <div class="scroll"><table class="rules cards">
        <thead><tr><th>rule</th><th class="number">decisions/s</th><th class="number">refused/s</th><th class="number">refused</th><th class="wide">refused keys</th><th class="wide">last 15 min</th><th>since</th><th>mode</th></tr></thead>
        <tbody>${rules.slice(0, shown).map((row) => html`<${Row} key=${row.rule} row=${row} now=${now} open=${open === row} />`)}</tbody>
      </table>
      ${rules.length > shown && html`<button class="link" onClick=${() => setShown(shown + ROWS)}>Show ${Math.min(ROWS, rules.length - shown)} more of ${rules.length}</button>`}</div>
      ${open && html`<${Rule} key=${open.rule} row=${open} canChange=${canChange} changes=${changes} now=${now} />`}
    </div>`}
  </section>`;
}

function Figure({ value, label, kind = "", note = "" }) {
  return html`<div class=${`figure ${kind}`}><strong>${value}</strong><span>${label}</span>${note && html`<em>${note}</em>`}</div>`;
}

function Nothing() {
  return html`<div class="panel hello"><h2>No traffic yet</h2>
    <p>Ask it something, and watch it appear here:</p>
    <pre><code>curl -i localhost:8080/v1/check -d '{"domain":"api","descriptors":[{"user":"42"}]}'</code></pre></div>`;
}

function Attention({ rules, health, changes, now }) {
  const items = [];
  for (const [name, state] of Object.entries(health?.components ?? {})) {
    if (state !== "up") items.push({ kind: "refused", sign: "▲", text: `${name} is down` });
  }
  const refusing = rules.filter((row) => row.refused_rate > 0 && row.mode === "enforce").sort((a, b) => b.refused_rate - a.refused_rate);
  for (const row of refusing.slice(0, 4)) {
    items.push({ kind: "refused", sign: "●", rule: row.rule, text: `refuses ${rate(row.refused_rate)}/s${row.since ? ` since ${timeOfDay(row.since)}` : ""}` });
  }
  for (const row of rules.filter((each) => each.degraded > 0).slice(0, 2)) {
    items.push({ kind: "near", sign: "◌", rule: row.rule, text: `${count(row.degraded)} decided without the store` });
  }
  for (const row of rules.filter((each) => each.mode === "off").slice(0, 3)) {
    items.push({ kind: "near", sign: "⏻", rule: row.rule, text: "is switched off" });
  }
  const recent = changes.filter((each) => now - each.at < 900).slice(0, 3);
  return html`<aside class="panel attention" aria-label="Needs attention"><h2>Needs attention</h2>
    ${items.length === 0 ? html`<p class="quiet">Nothing is limited right now.</p>` : html`<ul>${items.map((item) => html`
      <li class=${item.kind}><span aria-hidden="true">${item.sign}</span> ${item.rule && html`<a href=${`#/overview/${encodeURIComponent(item.rule)}`}><bdi>${visible(item.rule)}</bdi></a> `}${item.text}</li>`)}</ul>`}
    ${recent.length > 0 && html`<h3>Changed just before</h3><ul>${recent.map((each) => html`
      <li><span aria-hidden="true">◆</span> <bdi>${visible(each.what)}</bdi> → ${visible(each.after ?? "removed")}, ${ago(each.at, now)} by ${visible(each.who)}</li>`)}</ul>`}
  </aside>`;
}

function Row({ row, now, open }) {
  const go = (event) => {
    if (!event.target.closest("a, button")) location.hash = open ? "#/overview" : `#/overview/${encodeURIComponent(row.rule)}`;
  };
  const over = row.mode === "shadow" ? row.shadowed : row.refused;
  return html`<tr class=${open ? "chosen" : ""} onClick=${go}>
    <td data-label="rule"><a href=${open ? "#/overview" : `#/overview/${encodeURIComponent(row.rule)}`} aria-expanded=${open}><bdi>${visible(row.rule)}</bdi></a>
      <div class="quiet">${row.limits.join(", ") || row.line.split(": ").slice(1).join(": ").split(",")[0]}</div></td>
    <td class="number" data-label="decisions/s">${rate(row.rate)}</td>
    <td class=${`number ${row.refused_rate ? "is-refused" : ""}`} data-label="refused/s">${rate(row.refused_rate)}</td>
    <td class="number" data-label="refused">${share(over, row.asked)}</td>
    <td class="wide" data-label="refused keys">${row.keys.length && row.refused ? html`<${Key} text=${row.keys[0][0]} most=${28} />${row.keys.length + row.more_keys > 1 ? html` <span class="quiet">+${row.keys.length + row.more_keys - 1}</span>` : ""}` : html`<span class="quiet">–</span>`}</td>
    <td class="wide" data-label="last 15 min"><${Spark} points=${row.spark} label=${`${count(row.asked)} decisions, ${count(over)} over the limit`} /></td>
    <td data-label="since">${row.since ? html`<span title=${duration(now - row.since)}>${timeOfDay(row.since)}</span>` : html`<span class="quiet">–</span>`}</td>
    <td data-label="mode"><${Mode} row=${row} /></td>
  </tr>`;
}

export function Mode({ row }) {
  const sign = { enforce: "", shadow: "◫ ", off: "⏻ " }[row.mode];
  return html`<span class=${`mode-${row.mode}`}>${sign}${row.mode}</span>${row.overrides ? html` <span class="badge" title="overrides">${row.overrides}</span>` : ""}`;
}

function ordered(rules, sort) {
  const rows = [...rules];
  if (sort === "name") return rows.sort((a, b) => a.rule.localeCompare(b.rule));
  if (sort === "rate") return rows.sort((a, b) => b.rate - a.rate || b.asked - a.asked);
  // Rules that refuse now, then those that did, then shadow, then the rest by traffic.
  const weight = (row) => [row.refused_rate, row.refused, row.shadowed, row.asked];
  return rows.sort((a, b) => {
    const [left, right] = [weight(a), weight(b)];
    const at = left.findIndex((value, n) => value !== right[n]);
    return at < 0 ? a.rule.localeCompare(b.rule) : right[at] - left[at];
  });
}
