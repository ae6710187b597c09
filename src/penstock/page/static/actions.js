// Changes: each says what happens and asks why, and can be taken back afterwards.

import { html, useEffect, useRef, useState } from "/page/vendor/preact-htm.js";
import { ask } from "./api.js";

let openDialog = () => {};
let addToast = () => {};

// Ask for a reason, and for how long if `lasts`, then do it.
export function change(action) {
  openDialog(action);
}

export async function make(action, { why, lasts } = {}) {
  const body = { ...action.body };
  const method = action.method ?? "PUT";
  const query = { ...action.query };
  if (action.history !== false) {
    if (method === "DELETE") { /* the query has no reason */ } else if (why) body.why = why;
    if (action.lasts && lasts) body.lasts = lasts;
  }
  await ask(action.path, { method, query, body: method === "DELETE" ? undefined : body });
  let number = null;
  if (action.history !== false) {
    try {
      number = (await ask("/v1/changes", { query: { limit: 1 } })).changes[0]?.number ?? null;
    } catch { /* there is no history here */ }
  }
  addToast({ text: `${action.done ?? action.verb}: done.`, number });
}

export async function undo(number) {
  await ask("/v1/undo", { method: "POST", body: { number, why: "undone on the page" } });
  addToast({ text: `Change ${number} was taken back.`, number: null });
}

export function Confirm() {
  const [action, setAction] = useState(null);
  const [why, setWhy] = useState("");
  const [lasts, setLasts] = useState("1h");
  const [error, setError] = useState("");
  const [busy, setBusy] = useState(false);
  const dialog = useRef(null);
  openDialog = (next) => { setAction(next); setWhy(""); setError(""); setLasts("1h"); };
  useEffect(() => {
    if (action && !dialog.current.open) dialog.current.showModal();
    if (!action && dialog.current.open) dialog.current.close();
  }, [action]);
  const submit = async (event) => {
    event.preventDefault();
    setBusy(true);
    try {
      await make(action, { why, lasts });
      setAction(null);
      action.after?.();
    } catch (problem) {
      setError(problem.message);
    } finally {
      setBusy(false);
    }
  };
  return html`<dialog ref=${dialog} onClose=${() => setAction(null)} aria-labelledby="dialog-title">
    ${action && html`<form onSubmit=${submit}>
      <h2 id="dialog-title">${action.verb}</h2>
      ${action.text && html`<p>${action.text}</p>`}
      ${action.lasts && html`<label>For how long
        <select value=${lasts} onChange=${(event) => setLasts(event.target.value)}>
          <option value="10m">10 minutes</option><option value="1h">1 hour</option><option value="8h">8 hours</option>
          <option value="24h">1 day</option><option value="7d">7 days</option>
        </select></label>`}
      ${action.history !== false && html`<label>Why
        <input value=${why} onInput=${(event) => setWhy(event.target.value)} maxlength="200" placeholder="Shown in the list of changes" required=${Boolean(action.needsWhy)} /></label>`}
      ${error && html`<p class="error" role="alert">${error}</p>`}
      <p class="quiet">${action.history === false ? "This cannot be undone." : "You can undo it in the list of changes."}</p>
      <div class="buttons">
        <button type="button" onClick=${() => setAction(null)}>Cancel</button>
        <button class="primary" disabled=${busy}>${action.verb}</button>
      </div>
    </form>`}
  </dialog>`;
}

export function Toasts() {
  const [toast, setToast] = useState(null);
  const [error, setError] = useState("");
  addToast = (next) => { setToast(next); setError(""); };
  useEffect(() => {
    if (!toast) return undefined;
    const timer = setTimeout(() => setToast(null), 30_000);
    return () => clearTimeout(timer);
  }, [toast]);
  if (!toast) return html`<div class="toasts" role="status"></div>`;
  const back = async () => {
    try {
      await undo(toast.number);
    } catch (problem) {
      setError(problem.message);
    }
  };
  return html`<div class="toasts" role="status"><div class="toast">
    <span>${error || toast.text}</span>
    ${toast.number !== null && html`<button class="link" onClick=${back}>Undo</button>`}
    <button class="icon" aria-label="Dismiss" onClick=${() => setToast(null)}>×</button>
  </div></div>`;
}
