// What each rule would say to a request. Nothing is counted.

import { html, useState } from "/page/vendor/preact-htm.js";
import { ask } from "./api.js";
import { duration, visible } from "./format.js";

export function Test({ live }) {
  const domains = [...new Set((live?.rules ?? []).map((row) => row.domain))];
  const [text, setText] = useState("");
  const [domain, setDomain] = useState("");
  const [result, setResult] = useState(null);
  const [error, setError] = useState("");
  const run = async (event) => {
    event.preventDefault();
    const descriptor = text.split("\n").map((line) => line.trim()).filter(Boolean);
    try {
      setError("");
      setResult((await ask("/v1/counters", { query: { domain: domain || domains[0], descriptor } })).counters);
    } catch (problem) {
      setResult(null);
      setError(problem.message);
    }
  };
  return html`<section>
    <h1>Test a request</h1>
    <p class="quiet">One descriptor a line: pairs in the order of the rules, such as <code>plan=gold,user=42</code>. Nothing is counted.</p>
    <form class="test" onSubmit=${run}>
      ${domains.length > 1 && html`<label>Domain <select value=${domain || domains[0]} onChange=${(event) => setDomain(event.target.value)}>
        ${domains.map((each) => html`<option value=${each}>${each}</option>`)}</select></label>`}
      <label>Descriptors <textarea rows="3" spellcheck="false" value=${text} onInput=${(event) => setText(event.target.value)} placeholder="user=42" required></textarea></label>
      <button class="primary">What would happen?</button>
    </form>
    ${error && html`<p class="error" role="alert">${error}</p>`}
    ${result?.map((each) => html`<${Answer} answer=${each} />`)}
  </section>`;
}

function Answer({ answer }) {
  const pairs = answer.descriptor.map(([key, value]) => `${key}=${value}`).join(" ");
  const refused = answer.limits.filter((limit) => !limit.allowed);
  const sentence = !answer.rule
    ? "No rule matches: it is allowed and not counted."
    : refused.length
      ? `Refused by ${answer.rule}. Passes again in ${duration(Math.max(...refused.map((limit) => limit.retry_after ?? 0)))}.`
      : `Allowed by ${answer.rule}.`;
  return html`<article class=${`answer ${refused.length && !answer.shadow ? "refused" : "allowed"}`}>
    <h2><code><bdi>${visible(pairs)}</bdi></code></h2>
    <p>${refused.length ? "✕" : "✓"} ${sentence}${answer.shadow ? " The rule is in shadow: nothing is refused." : ""}</p>
    ${answer.limits.length > 0 && html`<${Limits} limits=${answer.limits} />`}
  </article>`;
}

export function Limits({ limits }) {
  return html`<table><thead><tr><th>limit</th><th class="number">left</th><th>passes</th><th>full again in</th></tr></thead>
    <tbody>${limits.map((limit) => html`<tr>
      <td>${limit.limit}${limit.overridden ? html` <span class="badge">override</span>` : ""}</td>
      <td class="number">${limit.remaining}</td>
      <td>${limit.allowed ? "now" : `in ${duration(limit.retry_after)}`}</td>
      <td>${limit.reset_after ? duration(limit.reset_after) : "–"}</td></tr>`)}</tbody></table>`;
}
