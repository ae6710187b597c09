// One rule, beside the table: its limits in words, its last minutes, its keys, and its switches.

import { html, useEffect, useState } from "/page/vendor/preact-htm.js";
import { change } from "./actions.js";
import { ask, every } from "./api.js";
import { Timeline } from "./chart.js";
import { count, share, timeOfDay, visible } from "./format.js";
import { Key, pairOf } from "./key.js";
import { Mode, marksOf } from "./overview.js";

const UNITS = { second: "a second", minute: "a minute", hour: "an hour", day: "a day", week: "a week", month: "a month", year: "a year" };

// "5/minute lockout 15m" in words; what is not known stays as it is written.
export function inWords(limit) {
  const match = /^(\d+)\/(\w+)(.*)$/.exec(limit);
  if (!match || !UNITS[match[2]]) return limit;
  const rest = match[3].trim();
  const lockout = /^lockout (\S+)$/.exec(rest);
  const burst = /^burst (\d+)$/.exec(rest);
  const end = lockout ? `, then nothing for ${lockout[1]}` : burst ? `, ${burst[1]} at once` : rest ? ` (${rest})` : "";
  return `${Number(match[1]).toLocaleString("en")} ${UNITS[match[2]]}${end}`;
}

export function Rule({ row, canChange, changes, now }) {
  const [span, setSpan] = useState("15m");
  const [data, setData] = useState(null);
  useEffect(() => {
    setData(null);
    return every(span === "15m" ? 1 : 30, async () => {
      try { setData(await ask("/v1/history", { query: { rule: row.rule, span } })); } catch { /* kept */ }
    });
  }, [row.rule, span]);
  const keys = row.rule.split("/").slice(1).map((step) => step.split("=")[0]);
  const each = keys.length ? ` for each ${keys.at(-1).replaceAll("_", " ")}` : "";
  const words = row.limits.map(inWords).join("; ") || row.line.split(": ").slice(1).join(": ");
  const over = row.mode === "shadow" ? row.shadowed : row.refused;
  const switched = (mode, verb, text) => change({ verb: `${verb} ${visible(row.rule)}`, text, path: "/v1/mode", body: { mode, name: row.rule }, lasts: mode !== "enforce", needsWhy: true });
  return html`<aside class="panel detail" aria-label=${`Rule ${row.rule}`}>
    <div class="row"><h2><bdi>${visible(row.rule)}</bdi></h2><a class="icon" href="#/overview" aria-label="Close">×</a></div>
    <p class="lead">${words}${each}.</p>
    <p>${row.asked === 0 ? "It was not asked in the last 15 minutes."
      : over === 0 ? `It refused nothing of ${count(row.asked)} in the last 15 minutes.`
      : `${row.mode === "shadow" ? "It would have refused" : "It refused"} ${share(over, row.asked)} of ${count(row.asked)} in the last 15 minutes${row.since ? `, since ${timeOfDay(row.since)}` : ""}.`}</p>
    <div class="row"><span><${Mode} row=${row} /></span>
      ${canChange && html`<div class="buttons">
        ${row.mode !== "enforce" && html`<button onClick=${() => change({ verb: `Enforce ${visible(row.rule)}`, text: "It refuses again what is over its limit.", path: "/v1/mode", method: "DELETE", query: { name: row.rule } })}>Enforce…</button>`}
        ${row.mode !== "shadow" && html`<button onClick=${() => switched("shadow", "Shadow", "It decides and counts, but refuses nothing.")}>Shadow…</button>`}
        ${row.mode !== "off" && html`<button class="danger" onClick=${() => switched("off", "Switch off", "It neither refuses nor counts.")}>Off…</button>`}
      </div>`}</div>
    <div class="segments" role="group" aria-label="Span">${["15m", "24h"].map((each) => html`
      <button aria-pressed=${span === each} onClick=${() => setSpan(each)}>${each === "15m" ? "15 min" : "24 h"}</button>`)}</div>
    <${Timeline} key=${span} data=${data} marks=${marksOf(changes)} title=${`Decisions of ${row.rule}`} />
    <h3>Keys refused most</h3>
    ${row.keys.length === 0 ? html`<p class="quiet">None.</p>` : html`<table><tbody>${row.keys.map(([text, times]) => html`<tr key=${text}>
      <td><${Key} text=${text} most=${36} /></td><td class="number">${count(times)}</td>
      <td class="actions">${pairOf(text.split("|").at(-1)) && html`<a href=${`#/keys/${encodeURIComponent(text.split("|").at(-1))}`}>Look</a>`}</td></tr>`)}</tbody></table>
      ${row.more_keys > 0 && html`<p class="quiet">and ${count(row.more_keys)} more</p>`}`}
    <p><a href=${`#/try/${encodeURIComponent(row.rule)}`}>Try another limit on the last hour</a></p>
    <h3>As it is in force</h3>
    <pre><code>${visible(row.line)}</code></pre>
  </aside>`;
}
