// A key, shown so that it cannot pass for another one, and copied as it is.

import { html, useState } from "/page/vendor/preact-htm.js";
import { shortened, visible } from "./format.js";

export function Key({ text, most }) {
  const [copied, setCopied] = useState(false);
  const copy = async (event) => {
    event.stopPropagation();
    try {
      await navigator.clipboard.writeText(text);
      setCopied(true);
      setTimeout(() => setCopied(false), 1500);
    } catch { /* not allowed by the browser */ }
  };
  return html`<button class="key" title=${`${visible(text)} (click to copy)`} onClick=${copy}><bdi>${copied ? "copied" : shortened(text, most)}</bdi></button>`;
}

// "user=42" from the first pair of a descriptor as text.
export const pairOf = (text) => {
  const at = text.indexOf("=");
  return at > 0 ? [text.slice(0, at).trim(), text.slice(at + 1).trim()] : null;
};
