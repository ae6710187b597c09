// Shown when a token is required. The token is sent once, and is not kept by the page.

import { html, useState } from "/page/vendor/preact-htm.js";
import { ask } from "./api.js";

export function Login({ done }) {
  const [token, setToken] = useState("");
  const [error, setError] = useState("");
  const submit = async (event) => {
    event.preventDefault();
    try {
      await ask("/v1/session", { method: "POST", body: { token } });
      setToken("");
      await done();
    } catch (problem) {
      setError(problem.message);
    }
  };
  return html`<main class="center"><form class="login" onSubmit=${submit}>
    <h1><img src="/page/icon.svg" alt="" width="24" height="24" /> Penstock</h1>
    <label>Token
      <input type="password" autocomplete="current-password" autofocus value=${token} onInput=${(event) => setToken(event.target.value)} required /></label>
    ${error && html`<p class="error" role="alert">${error}</p>`}
    <button class="primary">Log in</button>
    <p class="quiet">One of the tokens in the file that <code>--admin-token-file</code> names. You stay logged in for eight hours.</p>
  </form></main>`;
}
