"use strict";
/* What all parts use: texts, numbers, elements. Texts from dumps become text nodes, never markup. */
const meta = JSON.parse(document.getElementById("meta").textContent);
let language = meta.lang;

/** Return the text for a key in the page's language, with {0}, {1} … replaced. */
function text(key, ...values) {
  const entry = meta.words[key];
  return (entry ? entry[language] : key).replace(/\{(\d)\}/g, (_, place) => values[place]);
}

/* Control characters, marks that change the direction of text, and characters without a width are shown by code. */
const UNSAFE = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]/gu;
function safe(value) {
  return String(value).replace(UNSAFE, (sign) => "\\u" + sign.codePointAt(0).toString(16).padStart(4, "0"));
}

/** Make an element with attributes and children; strings become text. */
function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "on") for (const [event, listener] of Object.entries(value)) element.addEventListener(event, listener);
    else if (value === true) element.setAttribute(key, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(key, value);
  }
  element.append(...children.map((child) => (child instanceof Node ? child : safe(child))));
  return element;
}

/** Return the link to the row or call with a name. */
const anchor = (name) => "#" + encodeURIComponent(name.replace(/\p{Surrogate}/gu, "\ufffd"));

const byId = (id) => document.getElementById(id);

/** Return a number as a person reads it; the full digits belong in the title. */
function rounded(value, percent = false) {
  if (typeof value !== "number") return value;
  if (percent) return rounded(value * 100) + " %";
  if (Number.isInteger(value) && Math.abs(value) < 1e7) return String(value);
  const size = Math.abs(value);
  if (size >= 1e-3 && size < 1e6) {
    const short = Number(value.toPrecision(5));
    return String(Math.abs(short) === 1 && short !== value ? Number(value.toPrecision(9)) : short);
  }
  return value.toExponential(2).replace("e+", "e");
}

const counted = (number) => number.toLocaleString(language === "zh" ? "zh-CN" : "en-US");

/** Put every text of the page into its language. */
function translate() {
  document.documentElement.lang = language === "zh" ? "zh-CN" : "en";
  for (const element of document.querySelectorAll("[data-t]")) element.textContent = text(element.dataset.t);
  for (const name of ["title", "aria-label", "placeholder"])
    for (const element of document.querySelectorAll(`[data-t-${name}]`))
      element.setAttribute(name, text(element.getAttribute(`data-t-${name}`)));
}

async function copy(value, button) {
  try {
    await navigator.clipboard.writeText(value);
  } catch {
    const field = make("textarea", { class: "offscreen" });
    field.value = value;
    document.body.append(field);
    field.select();
    document.execCommand("copy");
    field.remove();
  }
  const label = button.textContent;
  button.textContent = text("copied");
  setTimeout(() => (button.textContent = label), 1200);
}
