// The table of calls: only the rows in sight are in the page, so that a hundred thousand scroll like a hundred.

const ROW = 27;
const HEAD = 32;
const COLUMNS = [
  { name: "verdict", title: "verdict", text: (call) => calls.verdicts[calls.verdict[call]] },
  { name: "rank", title: "rank", number: true, narrow: true, text: (call) => calls.rank[call] },
  { name: "step", title: "step", number: true, text: (call) => calls.step[call] },
  { name: "seq", title: "seq", number: true, narrow: true, text: (call) => calls.seq[call] },
  { name: "api", title: "API", mono: true, text: (call) => calls.names.api[calls.api[call]] },
  { name: "ratio", title: "× limit", number: true, text: (call) => ratioText(calls.ratio[call]) },
  { name: "dtype", title: "dtype", narrow: true, text: (call) => calls.names.dtype[calls.dtype[call]] },
  { name: "standard", title: "standard", narrow: true, text: (call) => calls.names.standard[calls.standard[call]] },
  { name: "message", title: "message", narrow: true, text: (call) => calls.names.message[calls.message[call]] },
];
let shown = new Int32Array(0);
let chosen = -1;
let body = null;
let drawn = "";

function classOf(column) {
  return [column.number ? "n" : "", column.mono ? "mono" : "", column.narrow ? "narrow" : ""].join(" ").trim() || null;
}

function drawHead() {
  const head = make("div", { class: "head", role: "row" });
  for (const column of COLUMNS) {
    const active = sorting.column === column.name;
    const sort = make("button", { type: "button", onclick: () => sortBy(column.name) }, column.title, active ? (sorting.descending ? " ▼" : " ▲") : "");
    head.append(make("div", { class: classOf({ ...column, mono: false }), role: "columnheader", "aria-sort": active ? (sorting.descending ? "descending" : "ascending") : "none", "data-column": column.name }, sort));
  }
  return head;
}

// Worst first, then the other way round, then execution order again.
function sortBy(name) {
  const downFirst = name === "ratio";
  if (sorting.column !== name) Object.assign(sorting, { column: name, descending: downFirst });
  else if (sorting.descending === downFirst) sorting.descending = !downFirst;
  else Object.assign(sorting, { column: "order", descending: false });
  changed();
  document.querySelector(`#calls [data-column=${name}] button`).focus({ preventScroll: true });
}

function rebuild() {
  const call = chosenCall();
  shown = passing();
  chosen = call < 0 ? -1 : shown.indexOf(call);
  body = make("div", { class: "body", role: "presentation", style: `height:${shown.length * ROW}px` });
  const none = shown.length ? null : make("p", { class: "none" }, calls.count ? "No call passes these filters." : "There are no rows.");
  $("calls").replaceChildren(drawHead(), none ?? body);
  $("calls").setAttribute("aria-rowcount", shown.length + 1);
  $("count").textContent = `${shown.length} of ${calls.count} calls`;
  $("calls").scrollTop = 0;
  drawn = "";
  drawRows();
}

function drawRows() {
  const place = $("calls");
  const first = Math.max(0, Math.floor(place.scrollTop / ROW) - 6);
  const last = Math.min(shown.length, first + Math.ceil(place.clientHeight / ROW) + 12);
  const state = `${first} ${last} ${chosen}`;
  if (state === drawn || !shown.length) return;
  drawn = state;
  const rows = [];
  for (let at = first; at < last; at++) rows.push(rowAt(at));
  body.replaceChildren(...rows);
  if (chosen >= first && chosen < last) place.setAttribute("aria-activedescendant", `row-${chosen}`);
  else place.removeAttribute("aria-activedescendant");
}

function rowAt(at) {
  const call = shown[at];
  const verdict = calls.verdicts[calls.verdict[call]];
  const row = make("div", { class: at === chosen ? "row chosen" : "row", role: "row", id: `row-${at}`, "aria-rowindex": at + 2, style: `top:${at * ROW}px`, "data-at": at });
  for (const column of COLUMNS) {
    const text = String(column.text(call));
    const cell = make("div", { class: classOf(column), role: "gridcell", title: text.length > 20 ? text : null }, text);
    if (column.name === "verdict") cell.replaceChildren(make("span", { class: verdict }, make("b", {}, verdict[0].toUpperCase()), ` ${verdict}`));
    row.append(cell);
  }
  return row;
}

function chosenCall() {
  return chosen >= 0 && chosen < shown.length ? shown[chosen] : -1;
}

function moveTo(at) {
  if (!shown.length) return;
  chosen = Math.max(0, Math.min(shown.length - 1, at));
  const place = $("calls");
  const top = chosen * ROW;
  if (top < place.scrollTop) place.scrollTop = top;
  else if (top + ROW + HEAD > place.scrollTop + place.clientHeight) place.scrollTop = top + ROW + HEAD - place.clientHeight;
  drawRows();
}

function onTableKey(event) {
  if (event.target !== $("calls")) return;
  const page = Math.max(1, Math.floor($("calls").clientHeight / ROW) - 2);
  const moves = { ArrowDown: chosen + 1, ArrowUp: chosen - 1, PageDown: chosen + page, PageUp: chosen - page, Home: 0, End: shown.length - 1 };
  if (event.key in moves) moveTo(moves[event.key]);
  else if (event.key === "Enter") openDetail(chosenCall(), $("calls"));
  else return;
  event.preventDefault();
}

// Sets filters and the fields that show them.
function filterFields(values) {
  const fields = { text: "f-text", operator: "f-operator", rank: "f-rank", step: "f-step", dtype: "f-dtype", phase: "f-phase" };
  for (const [name, value] of Object.entries(values)) if (fields[name]) $(fields[name]).value = String(value);
  if ("verdicts" in values) for (const box of document.querySelectorAll("#f-verdicts input")) box.checked = !values.verdicts || values.verdicts.has(Number(box.value));
  readFields();
}

function readFields() {
  const found = {};
  for (const name of ["rank", "step"]) {
    const test = rangeTest($(`f-${name}`).value);
    $(`f-${name}`).setAttribute("aria-invalid", test === undefined);
    found[name] = test ?? null;
  }
  const boxes = [...document.querySelectorAll("#f-verdicts input")];
  const checked = new Set(boxes.filter((box) => box.checked).map((box) => Number(box.value)));
  setFilters({
    ...found,
    text: $("f-text").value,
    verdicts: checked.size === boxes.length ? null : checked,
    operator: Number($("f-operator").value),
    dtype: Number($("f-dtype").value),
    phase: Number($("f-phase").value),
  });
}

function choices(id, names, empty) {
  const list = names.map((name, at) => ({ name, at })).filter(({ name }) => name).sort((a, b) => (a.name < b.name ? -1 : 1));
  $(id).append(make("option", { value: -1 }, empty), ...list.map(({ name, at }) => make("option", { value: at }, name)));
}

function startTable() {
  choices("f-operator", calls.operators, "all");
  choices("f-dtype", calls.names.dtype, "all");
  choices("f-phase", calls.names.phase, "both");
  const used = new Set(calls.verdict);
  $("f-verdicts").append(...calls.verdicts.map((verdict, at) => (used.has(at) ? make("label", { class: verdict }, make("input", { type: "checkbox", value: at, checked: true }), ` ${verdict}`) : null)).filter(Boolean));
  let waiting = 0;
  $("filters").addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(readFields, 60);
  });
  $("filters").addEventListener("submit", (event) => event.preventDefault());
  $("filters").addEventListener("reset", () => setTimeout(readFields));
  $("calls").addEventListener("scroll", () => requestAnimationFrame(drawRows));
  $("calls").addEventListener("keydown", onTableKey);
  $("calls").addEventListener("click", (event) => {
    const row = event.target.closest(".row");
    if (!row) return;
    moveTo(Number(row.dataset.at));
    openDetail(chosenCall(), $("calls"));
  });
  addEventListener("resize", drawRows);
  onChange(rebuild);
  rebuild();
}
