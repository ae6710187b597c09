// Try: change the rules, see what they would have done to the last hour, and put them in force.

import { html, useEffect, useRef, useState } from "/page/vendor/preact-htm.js";
import { change } from "./actions.js";
import { ask } from "./api.js";
import { count, duration, share, visible } from "./format.js";
import { Key } from "./key.js";

const LIMIT = /(\d[\d_,]*)(\s*(?:\/|per\b))/;

export function Try({ canChange, rest }) {
  const [loaded, setLoaded] = useState(null);
  const [file, setFile] = useState("");
  const [text, setText] = useState("");
  const [problems, setProblems] = useState([]);
  const [trial, setTrial] = useState(null);
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState("");
  const turn = useRef(0);

  const load = async () => {
    try {
      const data = await ask("/v1/rules/files");
      const names = Object.keys(data.files);
      const chosen = names.find((name) => rest && data.files[name].includes(rest.split("/").at(-1)?.split("=")[0])) ?? names[0] ?? "";
      setLoaded(data);
      setFile(chosen);
      setText(data.files[chosen] ?? "");
      setTrial(null);
      setProblems([]);
      setError("");
    } catch (problem) {
      setError(problem.message);
    }
  };
  useEffect(() => { load(); }, []);

  const files = () => ({ ...loaded.files, [file]: text });
  // A trial a moment after the last key; an answer to an older text is dropped.
  useEffect(() => {
    if (!loaded) return undefined;
    const mine = ++turn.current;
    const timer = setTimeout(async () => {
      setBusy(true);
      try {
        const result = await ask("/v1/rules/try", { method: "POST", body: { files: files() } });
        if (mine === turn.current) { setTrial(result); setProblems([]); setError(""); }
      } catch (problem) {
        if (mine === turn.current) {
          setProblems(problem.body?.problems ?? []);
          setError(problem.body?.problems ? "" : problem.message);
        }
      } finally {
        if (mine === turn.current) setBusy(false);
      }
    }, 300);
    return () => clearTimeout(timer);
  }, [text, file, loaded]);

  if (error && !loaded) return html`<section><h1>Try</h1><p class="error" role="alert">${error}</p></section>`;
  if (!loaded) return html`<p class="empty">Loading…</p>`;
  if (Object.keys(loaded.files).length === 0) return html`<section><h1>Try</h1><p class="empty">There are no rules yet. Start the service with <code>--rules PATH</code>.</p></section>`;
  const changed = text !== loaded.files[file];
  const put = () => change({
    verb: "Put these rules in force",
    text: loaded.kept
      ? "In every instance of the fleet. From then on the rules of the control store win over files."
      : "In all workers, until the service restarts: without --control, changes are not kept. Files stay as they are.",
    path: "/v1/rules/files",
    body: { files: files(), expect: loaded.revision },
    needsWhy: true,
    after: load,
  });
  return html`<section>
    <div class="row"><h1>Try</h1>
      ${Object.keys(loaded.files).length > 1 && html`<label class="inline">File <select value=${file} onChange=${(event) => { setFile(event.target.value); setText(loaded.files[event.target.value]); }}>
        ${Object.keys(loaded.files).map((name) => html`<option value=${name}>${name}</option>`)}</select></label>`}
      <span class="quiet">${loaded.source === "store" ? `from the control store, revision ${loaded.revision}` : "from files"}</span></div>
    <div class="split try">
      <div>
        <${Editor} text=${text} setText=${setText} problems=${problems} file=${file} />
        <${Sliders} text=${text} setText=${setText} original=${loaded.files[file]} />
        <div class="buttons">
          <button disabled=${!changed} onClick=${() => setText(loaded.files[file])}>Discard</button>
          ${canChange && html`<button class="primary" disabled=${!changed || problems.length > 0 || busy} onClick=${put}>Put in force…</button>`}
        </div>
      </div>
      <div class="panel" aria-live="polite" aria-busy=${busy}>
        ${error && html`<p class="error" role="alert">${error}</p>`}
        ${problems.length > 0
          ? html`<h2>This is not right yet</h2><ul class="problems">${problems.map((each) => html`<li>${visible(each)}</li>`)}</ul>`
          : trial ? html`<${Result} trial=${trial} changed=${changed} />` : html`<p class="quiet">Looking at the last hour…</p>`}
      </div>
    </div>
  </section>`;
}

// The text, with the lines that have problems marked.
function Editor({ text, setText, problems, file }) {
  const lines = text.split("\n");
  const wrong = new Map();
  for (const each of problems) {
    const match = /^(.*?):(\d+):\d+: (.*)$/.exec(each);
    if (match && (match[1] === file || match[1].endsWith(file))) wrong.set(Number(match[2]), match[3]);
  }
  const numbers = useRef(null);
  return html`<div class="editor">
    <pre aria-hidden="true" ref=${numbers}>${lines.map((_, n) => html`<span class=${wrong.has(n + 1) ? "wrong" : ""} title=${wrong.get(n + 1) ?? ""}>${`${n + 1}\n`}</span>`)}</pre>
    <textarea spellcheck="false" wrap="off" rows=${Math.min(30, Math.max(8, lines.length + 1))} aria-label=${`Rules in ${file}`} aria-invalid=${wrong.size > 0}
      value=${text} onInput=${(event) => setText(event.target.value)} onScroll=${(event) => { numbers.current.scrollTop = event.target.scrollTop; }}></textarea>
  </div>`;
}

// A slider for each limit of the text: dragging it writes the number.
function Sliders({ text, setText, original }) {
  const before = original.split("\n");
  const rows = text.split("\n").map((line, n) => ({ line, n, match: /limit|rate|requests_per_unit/.test(line) || /^\s*-\s*\d/.test(line) ? LIMIT.exec(line) : null })).filter((row) => row.match);
  if (rows.length === 0 || rows.length > 12) return null;
  const write = (n, value) => setText(text.split("\n").map((line, at) => (at === n ? line.replace(LIMIT, `${value}$2`) : line)).join("\n"));
  return html`<div class="sliders">${rows.map(({ line, n, match }) => {
    const value = Number(match[1].replace(/[_,]/g, ""));
    const start = Number((LIMIT.exec(before[n] ?? "")?.[1] ?? match[1]).replace(/[_,]/g, "")) || 1;
    return html`<label key=${n}><span><code>${line.trim()}</code> <span class="quiet">line ${n + 1}</span></span>
      <input type="range" min="0" max="100" step="1" value=${50 + 25 * Math.log10(Math.max(value, 0.01) / start)}
        aria-valuetext=${line.trim()} onInput=${(event) => write(n, Math.max(1, Math.round(start * 10 ** ((Number(event.target.value) - 50) / 25))))} /></label>`;
  })}</div>`;
}

function Result({ trial, changed }) {
  if (trial.requests === 0) return html`<h2>No requests to try it on</h2><p>${trial.unknown ? `${count(trial.unknown)} requests were too many different ones to keep.` : "Nothing was asked in the last hour, or the recorder is off (--no-flight-recorder)."}</p>`;
  const span = duration(trial.last - trial.first);
  return html`<h2>The last ${span}: ${count(trial.requests)} requests</h2>
    <p class="lead">${!changed ? `These rules would have refused ${count(trial.refused_before)} (${share(trial.refused_before, trial.requests)}).`
      : html`Refused: <strong>${count(trial.refused_before)} → ${count(trial.refused_after)}</strong> (${share(trial.refused_before, trial.requests)} → ${share(trial.refused_after, trial.requests)}).`}</p>
    ${changed && html`<p>${trial.newly_allowed ? `${count(trial.newly_allowed)} more pass. ` : ""}${trial.newly_refused ? `${count(trial.newly_refused)} more are refused. ` : ""}${!trial.newly_allowed && !trial.newly_refused ? "No request is decided otherwise. " : ""}</p>`}
    ${changed && trial.changes && html`<p class="quiet">Rules: ${visible(trial.changes)}</p>`}
    <table><thead><tr><th>rule</th><th class="number">asked</th><th class="number">refused</th><th class="number">keys refused</th></tr></thead>
      <tbody>${trial.rules.map((row) => html`<tr><td><bdi>${visible(row.rule)}</bdi></td><td class="number">${count(Math.max(row.asked_before, row.asked_after))}</td>
        <td class="number">${count(row.refused_before)} → ${count(row.refused_after)}</td><td class="number">${count(row.keys_before)} → ${count(row.keys_after)}</td></tr>`)}</tbody></table>
    ${trial.keys.length > 0 && html`<h3>Whom it changes</h3><table><thead><tr><th>key</th><th class="number">refused before</th><th class="number">after</th></tr></thead>
      <tbody>${trial.keys.map((row) => html`<tr><td><${Key} text=${row.key} most=${32} /></td><td class="number">${count(row.before)}</td><td class="number">${count(row.after)}</td></tr>`)}</tbody></table>
      ${trial.keys_changed > trial.keys.length && html`<p class="quiet">and ${count(trial.keys_changed - trial.keys.length)} more keys</p>`}`}
    <p class="quiet">Counters begin empty here, and clients are taken to send the same whatever they are answered.${trial.unknown ? ` ${count(trial.unknown)} requests were not kept.` : ""}</p>`;
}
