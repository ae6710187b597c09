// The page: who is limited and why, what changed, and a safe button. All data comes from the
// admin API of this server.

import { html, render, useEffect, useState } from "/page/vendor/preact-htm.js";
import { ask, every } from "./api.js";
import { Changes } from "./changes.js";
import { duration } from "./format.js";
import { Keys } from "./keys.js";
import { Login } from "./login.js";
import { Overview } from "./overview.js";
import { Test } from "./test.js";
import { Try } from "./try.js";
import { Confirm, Toasts, change } from "./actions.js";

const VIEWS = [["overview", "Overview"], ["keys", "Keys"], ["try", "Try"], ["changes", "Changes"], ["test", "Test"]];

const route = () => {
  const [view, ...rest] = location.hash.replace(/^#\/?/, "").split("/");
  return { view: VIEWS.some(([name]) => name === view) ? view : "overview", rest: decodeURIComponent(rest.join("/")) };
};

// What is polled once a second. Figures are added to those that are known.
function merged(known, fresh) {
  const sparks = new Map((known?.rules ?? []).map((row) => [row.rule, row.spark]));
  const rules = fresh.rules.map((row) => ({ ...row, spark: row.spark ?? sparks.get(row.rule) ?? [] }));
  if (fresh.complete || !known) return { ...fresh, rules };
  const totals = { ...fresh.totals };
  const more = fresh.totals.allowed.length;
  for (const [name, values] of Object.entries(known.totals)) {
    if (Array.isArray(values)) totals[name] = [...values.slice(more), ...fresh.totals[name]];
  }
  totals.start = fresh.second - totals.allowed.length + 1;
  return { ...fresh, rules, totals };
}

function App() {
  const [at, setAt] = useState(route());
  const [session, setSession] = useState(undefined);
  const [live, setLive] = useState(null);
  const [lost, setLost] = useState(null);
  const [health, setHealth] = useState(null);
  const [changes, setChanges] = useState([]);
  const [switches, setSwitches] = useState(null);

  useEffect(() => {
    const moved = () => setAt(route());
    addEventListener("hashchange", moved);
    return () => removeEventListener("hashchange", moved);
  }, []);

  const logIn = async () => {
    try {
      setSession(await ask("/v1/session"));
    } catch (error) {
      setSession(error.status === 401 || error.status === 403 || error.status === 429 ? null : undefined);
      if (error.status === 0) setLost((before) => before ?? Date.now());
    }
  };
  useEffect(() => { logIn(); }, []);

  useEffect(() => {
    if (!session) {
      return session === undefined ? every(2, () => session === undefined && logIn()) : undefined;
    }
    let known = null;
    const failed = (error) => {
      if (error.status === 401) setSession(null);
      else setLost((before) => before ?? Date.now());
    };
    const stops = [
      every(1, async () => {
        try {
          // Before its first second, a service has seen none: -1.
          const after = known && known.second > 0 ? known.second : undefined;
          const fresh = await ask("/v1/overview", { query: { after } });
          known = merged(known, fresh);
          setLive(known);
          setLost(null);
        } catch (error) {
          known = null; // whatever was wrong: begin anew
          failed(error);
        }
      }),
      every(3, async () => {
        try {
          setHealth(await ask("/v1/health"));
          setSwitches(await ask("/v1/switches"));
          setChanges((await ask("/v1/changes", { query: { limit: 100 } })).changes);
        } catch (error) { if (error.status === 401) failed(error); }
      }),
    ];
    return () => stops.forEach((stop) => stop());
  }, [session && session.name]);

  if (session === null) return html`<${Login} done=${logIn} />`;
  if (session === undefined) return html`<main class="center quiet" role="status">${lost ? "Penstock does not answer. Trying again…" : "Loading…"}</main>`;
  const canChange = session.role === "admin";
  const data = { live, health, changes, switches, canChange, now: live?.second ?? Date.now() / 1000 };
  const View = { overview: Overview, keys: Keys, try: Try, changes: Changes, test: Test }[at.view];
  return html`
    <${Header} ...${data} session=${session} />
    ${lost && html`<div class="banner" role="status">Penstock does not answer. What you see is ${duration((Date.now() - lost) / 1000 + 1)} old. Trying again…</div>`}
    ${health?.rules?.rejected && html`<div class="banner warning" role="status">New rules were rejected, older ones are in force: ${health.rules.rejected}</div>`}
    <div class="frame">
      <nav aria-label="Views">${VIEWS.map(([name, title]) => html`
        <a href=${`#/${name}`} aria-current=${at.view === name ? "page" : undefined}>${title}</a>`)}
      </nav>
      <main class=${lost ? "stale" : ""}><${View} ...${data} rest=${at.rest} /></main>
    </div>
    <${Confirm} /><${Toasts} />`;
}

function Header({ health, switches, canChange, session }) {
  const [query, setQuery] = useState("");
  const down = Object.entries(health?.components ?? {}).filter(([, state]) => state !== "up").map(([name]) => name);
  const mode = switches?.mode ?? "enforce";
  const search = (event) => {
    event.preventDefault();
    if (query.trim()) location.hash = `#/keys/${encodeURIComponent(query.trim())}`;
  };
  const theme = () => {
    const dark = document.documentElement.dataset.theme === "dark" ||
      (!document.documentElement.dataset.theme && matchMedia("(prefers-color-scheme: dark)").matches);
    document.documentElement.dataset.theme = dark ? "light" : "dark";
    try { localStorage.setItem("penstock-theme", document.documentElement.dataset.theme); } catch { /* private mode */ }
    dispatchEvent(new Event("penstock-theme"));
  };
  return html`<header>
    <a class="brand" href="#/overview"><img src="/page/icon.svg" alt="" width="20" height="20" />Penstock</a>
    <span class=${`state ${health ? (down.length ? "down" : "up") : ""}`} title=${health?.rules?.instance ?? ""}>
      ${health ? (down.length ? `▲ ${down.join(", ")} down` : "● healthy") : "…"}</span>
    <form role="search" onSubmit=${search}>
      <input type="search" placeholder="Who? user=42" aria-label="Search a key, such as user=42" value=${query}
        onInput=${(event) => setQuery(event.target.value)} />
    </form>
    <span class="push"></span>
    ${mode !== "enforce" && html`<strong class="mode">${mode === "off" ? "⏻ All limits are off" : "◫ Everything in shadow"}</strong>`}
    ${canChange && html`<details class="menu"><summary>Switches</summary><div>
      ${mode !== "enforce" && html`<button onClick=${() => change({ verb: "Enforce all limits", path: "/v1/mode", body: { mode: "enforce" } })}>Enforce all limits</button>`}
      ${mode !== "shadow" && html`<button onClick=${() => change({ verb: "Put everything in shadow", text: "Limits are decided and counted, but nothing is refused.", path: "/v1/mode", body: { mode: "shadow" }, lasts: true })}>Put everything in shadow…</button>`}
      ${mode !== "off" && html`<button class="danger" onClick=${() => change({ verb: "Switch all limits off", text: "The kill switch: nothing is limited or counted until it is switched back or the time is over.", path: "/v1/mode", body: { mode: "off" }, lasts: true })}>Switch all limits off…</button>`}
    </div></details>`}
    ${!canChange && html`<span class="badge" title="Your token may look, but change nothing.">read-only</span>`}
    <button class="icon" onClick=${theme} aria-label="Light or dark">◐</button>
    ${session.left !== null && html`<button class="link" onClick=${async () => { await ask("/v1/session", { method: "DELETE" }); location.reload(); }}>Log out ${session.name}</button>`}
  </header>`;
}

try {
  const theme = localStorage.getItem("penstock-theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch { /* private mode */ }
render(html`<${App} />`, document.getElementById("app"));
