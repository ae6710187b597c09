// Requests to the admin API. A change that fails says why; a lost connection is not an error
// of the user, so `live` keeps what it knew and says how old it is.

export class ApiError extends Error {
  constructor(status, message, body) {
    super(message);
    this.status = status;
    this.body = body;
  }
}

export async function ask(path, { method = "GET", query, body } = {}) {
  const url = new URL(path, location.origin);
  for (const [name, value] of Object.entries(query ?? {})) {
    for (const each of Array.isArray(value) ? value : [value]) {
      if (each !== undefined && each !== null) url.searchParams.append(name, each);
    }
  }
  const headers = { accept: "application/json" };
  if (body !== undefined) headers["content-type"] = "application/json";
  let response;
  try {
    response = await fetch(url, {
      method,
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      signal: AbortSignal.timeout(10_000),
      cache: "no-store",
    });
  } catch {
    throw new ApiError(0, "Penstock does not answer.");
  }
  let content = null;
  try {
    content = await response.json();
  } catch {
    // An empty or foreign body: the status says enough.
  }
  if (!response.ok && !(response.status === 503 && path === "/v1/health")) {
    throw new ApiError(response.status, content?.error ?? `Status ${response.status}.`, content);
  }
  return content;
}

// Calls `load` now and then once a second while the page is visible; returns a function that ends it.
export function every(seconds, load) {
  let ended = false;
  let timer = 0;
  const turn = async () => {
    if (!document.hidden) await load();
    if (!ended) timer = setTimeout(turn, seconds * 1000);
  };
  const shown = () => {
    if (!document.hidden && !ended) {
      clearTimeout(timer);
      turn();
    }
  };
  document.addEventListener("visibilitychange", shown);
  turn();
  return () => {
    ended = true;
    clearTimeout(timer);
    document.removeEventListener("visibilitychange", shown);
  };
}
