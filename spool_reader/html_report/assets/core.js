"use strict";
// Every text of a row goes into the page as text, never as markup: `make` is the only way in which elements are made.

const $ = (id) => document.getElementById(id);

function make(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") element.style.cssText = value;
    else if (value !== null && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined).map((child) => (child instanceof Node ? child : String(child))));
  return element;
}

async function unpack(letters) {
  const bytes = Uint8Array.from(atob(letters), (letter) => letter.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
}

function taken(id) {
  const element = $(id);
  const text = element.textContent;
  element.remove();
  return text;
}

function trouble(text) {
  $("trouble").textContent = text;
  $("trouble").hidden = false;
}

function ratioText(ratio) {
  if (Number.isNaN(ratio)) return "";
  if (!Number.isFinite(ratio)) return "∞";
  if (ratio === 0) return "0";
  return ratio >= 1e6 || ratio < 0.001 ? ratio.toExponential(1) + "×" : String(Number(ratio.toPrecision(3))) + "×";
}

function numberText(value) {
  if (typeof value !== "number") return value === null || value === undefined ? "" : String(value);
  if (Number.isInteger(value) && Math.abs(value) < 1e9) return String(value);
  const size = Math.abs(value);
  return size >= 1e6 || size < 1e-4 ? value.toExponential(4) : String(Number(value.toPrecision(6)));
}

// "0,2-5" as a test of numbers; null where nothing is asked for, undefined where it cannot be read.
function rangeTest(text) {
  const parts = text.split(/[\s,，]+/).filter(Boolean);
  if (!parts.length) return null;
  const ranges = parts.map((part) => /^(\d+)(?:-(\d+))?$/.exec(part));
  if (ranges.some((range) => !range)) return undefined;
  return (number) => ranges.some((range) => number >= +range[1] && number <= +(range[2] ?? range[1]));
}

function colours() {
  const style = getComputedStyle(document.documentElement);
  return Object.fromEntries(
    ["paper", "ink", "dim", "line", "soft", "accent", "error", "warning", "known", "pass", "skip", "low", "below", "above", "high", "none", "on-low", "on-high"].map((name) => [name, style.getPropertyValue("--" + name).trim()])
  );
}

function mixed(first, second, share) {
  const parts = (colour) => [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
  const [one, other] = [parts(first), parts(second)];
  return "#" + one.map((part, at) => Math.round(part + (other[at] - part) * share).toString(16).padStart(2, "0")).join("");
}

// A ratio on a logarithmic scale: from a thousandth of the limit to a thousand times it, with a break of colour at the limit.
function ratioColour(ratio, palette) {
  if (Number.isNaN(ratio)) return palette.none;
  const decades = Math.max(-3, Math.min(3, Math.log10(Math.max(ratio, 1e-9))));
  return decades <= 0 ? mixed(palette.low, palette.below, (decades + 3) / 3) : mixed(palette.above, palette.high, decades / 3);
}
