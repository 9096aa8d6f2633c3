// SPDX-License-Identifier: Apache-2.0
// Elements from data. Strings become text nodes and attributes, never markup.
"use strict";

function element(name, attributes, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (value !== null && value !== false) made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null && child !== ""));
  return made;
}

function button(text, label, action) {
  const made = element("button", { type: "button", "aria-label": label, title: label }, text);
  made.addEventListener("click", action);
  return made;
}

function share(part) {
  return `${(100 * Math.min(1, Math.max(0, part))).toFixed(2)}%`;
}

const TOKENS = new RegExp(
  [
    /(?<comment>#.*)/,
    /(?<string>"(?:[^"\\]|\\.)*"?|'(?:[^'\\]|\\.)*'?)/,
    /(?<decorator>@[\w.]+)/,
    /\b(?<word>and|as|assert|break|class|continue|def|elif|else|except|finally|for|from|if|import|in|is|lambda|not|or|pass|raise|return|try|while|with|yield|None|True|False)\b/,
    /\b(?<number>\d[\w.]*)/,
  ].map((part) => part.source).join("|"),
  "g",
);

function coloured(line) {
  const parts = [];
  let end = 0;
  for (const match of line.matchAll(TOKENS)) {
    const [kind] = Object.entries(match.groups).find(([, text]) => text !== undefined);
    parts.push(line.slice(end, match.index), element("span", { class: `code-${kind}` }, match[0]));
    end = match.index + match[0].length;
  }
  return [...parts, line.slice(end)];
}
