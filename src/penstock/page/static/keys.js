// A key over all rules: where it stands, why it is refused, and what to do about it.

import { html, useEffect, useState } from "/page/vendor/preact-htm.js";
import { change } from "./actions.js";
import { ask, every } from "./api.js";
import { count, visible } from "./format.js";
import { Key, pairOf } from "./key.js";
import { Limits } from "./test.js";

export function Keys({ rest, live, canChange }) {
  const pair = pairOf(rest);
  if (!pair) return html`<${Busiest} live=${live} asked=${rest} />`;
  return html`<${Standing} name=${pair[0]} value=${pair[1]} canChange=${canChange} key=${rest} />`;
}

// Without a search: the keys that are refused most.
function Busiest({ live, asked }) {
  const [keys, setKeys] = useState(null);
  useEffect(() => every(2, async () => {
    try { setKeys((await ask("/v1/top", { query: { n: 50 } })).keys); } catch { /* shown by the page */ }
  }), []);
  return html`<section><h1>Keys</h1>
    ${asked && html`<p class="error" role="alert">A key is written as name=value, such as user=42, not “${visible(asked)}”.</p>`}
    <p class="quiet">Search for a key above, such as <code>user=42</code>. These were refused most since the service started:</p>
    ${keys === null ? html`<p class="empty">Loading…</p>` : keys.length === 0
      ? html`<p class="empty">Nothing was refused yet.</p>`
      : html`<div class="scroll"><table><thead><tr><th>rule and key</th><th class="number">refused</th><th></th></tr></thead>
        <tbody>${keys.map((each) => {
          const [rule, ...pairs] = each.key.split(" ");
          const text = pairs.join(" ");
          return html`<tr key=${each.key}><td><span class="quiet">${visible(rule)}</span> <${Key} text=${text} /></td>
            <td class="number">${each.error ? "≤ " : ""}${count(each.refused)}</td>
            <td class="actions">${pairOf(text) && html`<a href=${`#/keys/${encodeURIComponent(text.split("|").at(-1))}`}>Look</a>`}</td></tr>`;
        })}</tbody></table></div>`}
  </section>`;
}

function Standing({ name, value, canChange }) {
  const [rules, setRules] = useState(null);
  const [error, setError] = useState("");
  useEffect(() => every(1, async () => {
    try {
      setRules((await ask("/v1/who", { query: { key: name, value } })).rules);
      setError("");
    } catch (problem) {
      if (problem.status) setError(problem.message);
    }
  }), [name, value]);
  const title = `${name}=${value}`;
  const refusing = (rules ?? []).filter((row) => row.limits.some((limit) => !limit.allowed));
  return html`<section>
    <div class="row"><h1><${Key} text=${title} most=${64} /></h1>
      ${canChange && html`<div class="buttons">
        <button onClick=${() => change({ verb: `Raise ${visible(title)}`, text: "Every limit that counts this key is doubled.", path: "/v1/overrides", body: { key: name, value, factor: 2 }, lasts: true, needsWhy: true })}>Raise…</button>
        <button onClick=${() => change({ verb: `Exempt ${visible(title)}`, text: "Requests with this key are allowed and not counted.", path: "/v1/allow", body: { key: name, entry: value }, lasts: true, needsWhy: true })}>Exempt…</button>
        <button class="danger" onClick=${() => change({ verb: `Block ${visible(title)}`, text: "Requests with this key are always refused.", path: "/v1/deny", body: { key: name, entry: value }, lasts: true, needsWhy: true })}>Block…</button>
      </div>`}</div>
    ${error && html`<p class="error" role="alert">${error}</p>`}
    ${rules === null && !error ? html`<p class="empty">Loading…</p>` : ""}
    ${rules !== null && html`<p class="lead">${rules.length === 0
      ? "No rule counts this key."
      : refusing.length
        ? `Refused by ${refusing.map((row) => row.rule).join(", ")}.`
        : "Not refused by any rule right now."}</p>`}
    ${(rules ?? []).map((row) => html`<article class=${`answer ${row.limits.some((limit) => !limit.allowed) ? "refused" : "allowed"}`} key=${row.domain + row.rule}>
      <div class="row"><h2><a href=${`#/overview/${encodeURIComponent(row.rule)}`}><bdi>${visible(row.rule)}</bdi></a> <span class="quiet">${row.mode === "enforce" ? "" : row.mode}</span></h2>
      ${canChange && row.limits.length > 0 && html`<div class="buttons">
        <button class="link" onClick=${() => change({ verb: "Refund one request", path: "/v1/counters/refund", method: "POST", body: { domain: row.domain, descriptors: [descriptorOf(row, name, value)] }, history: false })}>Refund</button>
        <button class="link" onClick=${() => change({ verb: "Reset this key", text: "It starts again with its full limit.", path: "/v1/counters/reset", method: "POST", body: { domain: row.domain, descriptors: [descriptorOf(row, name, value)] }, history: false })}>Reset</button>
      </div>`}</div>
      ${row.needs.length
        ? html`<p class="quiet">Counted together with ${row.needs.join(", ")}: ask under Test with all of them.</p>`
        : html`<${Limits} limits=${row.limits} />`}
    </article>`)}
  </section>`;
}

// The pairs that lead to a rule, from its id: "api/plan=gold/user" and user=42.
function descriptorOf(row, name, value) {
  const path = row.rule.split("/").slice(1);
  return path.map((step) => {
    const at = step.indexOf("=");
    const key = at < 0 ? step : step.slice(0, at);
    return key === name ? [name, value] : [key, step.slice(at + 1)];
  });
}
