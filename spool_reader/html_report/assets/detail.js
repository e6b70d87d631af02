// The panel of one call: its metrics against their limits, the worst element, its arguments, how to see it again.

let shownCall = -1;
let returnTo = null;
let pieces = null;
const opened = new Map();

async function rowOf(call) {
  const at = calls.opening.get(call);
  if (at === undefined) return null;
  pieces ||= taken("pieces").split("\n");
  const piece = Math.floor(at / calls.piece);
  if (!opened.has(piece)) opened.set(piece, unpack(pieces[piece]).then(JSON.parse));
  return (await opened.get(piece))[at % calls.piece];
}

function facts(call, row) {
  const name = (column) => calls.names[column][calls[column][call]];
  const list = [
    ["place", `rank ${calls.rank[call]}, step ${calls.step[call]}, seq ${calls.seq[call]}, ${name("phase")}`],
    ["session", name("session")],
    ["standard", [name("standard"), row?.mode].filter(Boolean).join(", ")],
    ["worst ratio", ratioText(calls.ratio[call]) && `${ratioText(calls.ratio[call])} its limit`],
    ["ladder / standard", row && `${row.status ?? "–"} / ${row.standard_status ?? "–"}`],
    ["recorded on", row?.recorded_on],
    ["replayed on", row?.device],
    ["stable", row && row.stable !== undefined ? (row.stable ? "two runs gave the same bits" : "two runs gave different bits") : ""],
    ["origin", row?.origin && originOf(call, row.origin)],
    ["known", row?.known?.join("; ")],
    ["known, expired", row?.known_expired?.join("; ")],
  ];
  return make("dl", {}, ...list.filter(([, value]) => value).flatMap(([label, value]) => [make("dt", {}, label), make("dd", {}, value)]));
}

// A backward call names the forward API that created it: one click away.
function originOf(call, origin) {
  const look = () => {
    closeDetail();
    filterFields({ text: origin, operator: -1, step: String(calls.step[call]), rank: String(calls.rank[call]), verdicts: null });
  };
  return make("button", { type: "button", class: "call", onclick: look }, origin);
}

function gauge(value, limit) {
  const ratio = Math.abs(value) / Math.abs(limit);
  if (!Number.isFinite(ratio) || limit === 0) return null;
  const width = Math.max(2, Math.min(100, 50 + (Math.log10(Math.max(ratio, 1e-9)) / 3) * 50));
  return make("span", { class: "gauge", title: `${ratioText(ratio)} its limit (logarithmic; the mark is the limit)` }, make("i", { style: `width:${width}%;background:${ratio > 1 ? "var(--error)" : "var(--below)"}` }), make("b", {}));
}

function checksTable(checks) {
  const head = make("tr", {}, ...["metric", "value", "limit", "", ""].map((title) => make("th", { scope: "col", class: /value|limit/.test(title) ? "n" : null }, title)));
  const lines = checks.filter((check) => Array.isArray(check)).map(([metric, value, limit, met]) =>
    make("tr", {}, make("td", {}, metric), make("td", { class: "n" }, numberText(value)), make("td", { class: "n" }, numberText(limit)), make("td", { class: met ? "pass" : "error" }, met ? "ok" : "FAIL"), make("td", {}, gauge(Number(value), Number(limit))))
  );
  return make("table", { class: "sheet checks" }, make("thead", {}, head), make("tbody", {}, ...lines));
}

function outputParts(output, said) {
  const shape = Array.isArray(output.shape) ? `[${output.shape.join(", ")}]` : "";
  const parts = [make("h3", {}, make("span", { class: "letter " + output.verdict }, String(output.verdict ?? "?").toUpperCase()), ` output ${output.path ?? output.index}: ${output.dtype ?? ""}${shape} against ${output.bench_dtype ?? "nothing"}`)];
  if (output.message && output.message !== said) parts.push(make("p", { class: "message" }, output.message));
  if (output.checks?.length) parts.push(checksTable(output.checks));
  const worst = output.worst;
  if (worst) parts.push(make("dl", {}, make("dt", {}, "worst element"), make("dd", {}, `[${[worst.index].flat().join(", ")}]`), make("dt", {}, "device"), make("dd", {}, numberText(worst.device)), make("dt", {}, "reference"), make("dd", {}, numberText(worst.reference))));
  if (output.would_pass) parts.push(make("p", { class: "hint" }, "would have passed with: " + Object.entries(output.would_pass).map(([name, value]) => `${name} ${numberText(value)}`).join(", ")));
  if (output.spread) parts.push(...spreadParts(output.spread));
  const metrics = Object.entries(output.metrics ?? {}).filter(([, value]) => value !== null);
  if (metrics.length) {
    const lines = metrics.map(([name, value]) => make("tr", {}, make("td", {}, name), make("td", { class: "n" }, numberText(value))));
    parts.push(make("details", {}, make("summary", {}, `all ${metrics.length} metrics`), make("table", { class: "sheet" }, ...lines)));
  }
  return parts;
}

function decade(exponent) {
  return `1e${exponent}`;
}

// Every decade from the first to the last, those without an element too: gaps are part of the picture.
function everyDecade(entries) {
  const found = new Map(entries.map((entry) => [entry[0], entry]));
  const [first, last] = [entries[0][0], entries.at(-1)[0]];
  return Array.from({ length: Math.min(700, last - first + 1) }, (_, at) => found.get(first + at) ?? [first + at, 0, NaN, NaN]);
}

function spreadParts(spread) {
  const sampled = spread.sampled ? `, of ${spread.sampled} elements taken at random` : "";
  const said = [`${spread.equal ?? 0} elements are equal`, spread.special ? `${spread.special} are nan or infinite` : ""].filter(Boolean).join(", ");
  const parts = [];
  if (spread.errors?.length) {
    const errors = everyDecade(spread.errors);
    const place = make("div", { class: "chart spread", role: "img", "aria-label": `histogram of the absolute error over ${errors.length} decades` });
    parts.push(make("h4", {}, `histogram of the absolute error (${said}${sampled})`), place);
    draws.push(() => figure(place, { tools: "", figure: { height: 190, x_range: errors.map(([exponent]) => decade(exponent)), x_axis_label: "absolute error, by decade", y_axis_label: "elements" } }, (plot, palette) => {
      plot.vbar({ x: errors.map(([exponent]) => decade(exponent)), top: errors.map(([, count]) => count), width: 0.9, fill_color: palette.below, line_color: null });
    }));
  }
  if (spread.by_magnitude?.length) {
    const sizes = everyDecade(spread.by_magnitude);
    const place = make("div", { class: "chart spread", role: "img", "aria-label": `error against magnitude over ${sizes.length} decades` });
    parts.push(make("h4", {}, "error against the magnitude of the reference: worst (line) and mean (dots)"), place);
    draws.push(() => figure(place, { tools: "", figure: { height: 190, x_range: sizes.map(([exponent]) => decade(exponent)), y_axis_type: "log", x_axis_label: "magnitude of the reference, by decade", y_axis_label: "absolute error" } }, (plot, palette) => {
      const [x, floor] = [sizes.map(([exponent]) => decade(exponent)), 1e-45];
      plot.line(x, sizes.map(([, , worst]) => Math.max(worst, floor)), { line_color: palette.error, line_width: 2 });
      plot.scatter(x, sizes.map(([, , worst]) => Math.max(worst, floor)), { size: 6, fill_color: palette.error, line_color: null });
      plot.scatter(x, sizes.map(([, , , mean]) => Math.max(mean, floor)), { size: 6, fill_color: palette.below, line_color: null });
    }));
  }
  return parts;
}

function argumentsTable(list) {
  const lines = list.filter(Array.isArray).map(([path, text, shape]) => make("tr", {}, make("td", {}, path), make("td", {}, text), make("td", {}, Array.isArray(shape) ? `[${shape.join(", ")}]` : "")));
  return [make("h3", {}, "Arguments"), make("table", { class: "sheet arguments" }, ...lines)];
}

function reproduceParts(row) {
  if (!row.reproduce) return [make("h3", {}, "Reproduce"), make("p", { class: "hint" }, "The bundle was not kept: judge with --save-errors DIR, and each failing call gets a command that reproduces it.")];
  const command = make("pre", { id: "reproduce" }, row.reproduce);
  // Where a browser keeps its clipboard from files, the command is at least marked, ready to be copied.
  const take = () => {
    getSelection().selectAllChildren(command);
    navigator.clipboard?.writeText(row.reproduce).then(() => (copy.textContent = "copied"), () => {});
  };
  const copy = make("button", { type: "button", onclick: take }, "copy");
  return [make("h3", {}, "Reproduce"), command, copy];
}

let draws = [];

async function openDetail(call, from) {
  if (call < 0) return;
  shownCall = call;
  returnTo = from ?? returnTo;
  let row = null;
  try {
    row = await rowOf(call);
  } catch (error) {
    trouble(`The details of this call cannot be read (${error.message}): is the file whole?`);
  }
  if (shownCall !== call) return;
  draws = [];
  const verdict = calls.verdicts[calls.verdict[call]];
  const api = calls.names.api[calls.api[call]];
  const step = (by) => make("button", { type: "button", "aria-label": by > 0 ? "next call" : "call before", onclick: () => moveDetail(by) }, by > 0 ? "↓" : "↑");
  const parts = [
    make("div", { class: "top" }, make("span", { class: "letter " + verdict }, verdict.toUpperCase()), make("h2", { id: "detail-title" }, api), step(-1), step(1), make("button", { type: "button", id: "detail-close", onclick: closeDetail }, "close")),
    facts(call, row),
  ];
  const message = row?.message ?? calls.names.message[calls.message[call]];
  if (message) parts.push(make("p", { class: "message" }, message));
  if (row) {
    for (const output of row.outputs) parts.push(...outputParts(output, message));
    if (row.more_outputs) parts.push(make("p", { class: "hint" }, `and ${row.more_outputs} more outputs, none of them worse: see the row`));
    if (row.arguments) parts.push(...argumentsTable(row.arguments));
    if (row.notes) parts.push(make("h3", {}, "Notes"), make("ul", { class: "plain" }, ...row.notes.map((note) => make("li", {}, note))));
    parts.push(...reproduceParts(row));
  } else parts.push(make("p", { class: "hint" }, "All metrics of this call stand in its row in results-rank*.jsonl; this page holds those of failing calls."));
  const panel = $("detail");
  panel.replaceChildren(...parts);
  panel.hidden = false;
  panel.scrollTop = 0;
  if (!panel.contains(document.activeElement) && from) panel.focus();
  await Promise.all(draws.map((draw) => draw()));
}

function moveDetail(by) {
  moveTo(chosen + by);
  if (chosenCall() >= 0) openDetail(chosenCall());
}

function closeDetail() {
  $("detail").hidden = true;
  shownCall = -1;
  returnTo?.focus();
  returnTo = null;
}
