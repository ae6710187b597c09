// What was changed, by whom and why, and how to take it back.

import { html, useState } from "/page/vendor/preact-htm.js";
import { undo } from "./actions.js";
import { ago, utc, visible } from "./format.js";

export function Changes({ changes, canChange, now }) {
  const [filter, setFilter] = useState("");
  const [problem, setProblem] = useState(null);
  const wanted = filter.toLowerCase();
  const rows = changes.filter((each) => `${each.what} ${each.who} ${each.why}`.toLowerCase().includes(wanted));
  const back = async (number) => {
    try {
      setProblem(null);
      await undo(number);
    } catch (error) {
      setProblem({ number, text: error.message });
    }
  };
  return html`<section>
    <div class="row"><h1>Changes</h1>
      <input type="search" placeholder="Filter" aria-label="Filter the changes" value=${filter} onInput=${(event) => setFilter(event.target.value)} /></div>
    ${rows.length === 0
      ? html`<p class="empty">${changes.length ? "No change matches." : "Nothing was changed since the service started: rules, overrides, switches and lists are as they were."}</p>`
      : html`<div class="scroll"><table class="cards">
        <thead><tr><th class="number">no.</th><th>when</th><th>what</th><th>before → after</th><th>who</th><th>why</th><th></th></tr></thead>
        <tbody>${rows.map((each) => html`<tr key=${each.number}>
          <td class="number" data-label="no.">${each.number}</td>
          <td data-label="when" title=${utc(each.at)}>${ago(each.at, now)}</td>
          <td data-label="what"><code><bdi>${visible(each.what)}</bdi></code></td>
          <td data-label="before → after">${visible(each.before ?? "not set")} → <strong>${visible(each.after ?? "not set")}</strong></td>
          <td data-label="who">${visible(each.who)}</td>
          <td data-label="why">${each.why ? visible(each.why) : html`<span class="quiet">–</span>`}</td>
          <td class="actions">${canChange && html`<button class="link" onClick=${() => back(each.number)}>Undo</button>`}
            ${problem?.number === each.number && html`<p class="error" role="alert">${problem.text}</p>`}</td>
        </tr>`)}</tbody></table></div>`}
  </section>`;
}
