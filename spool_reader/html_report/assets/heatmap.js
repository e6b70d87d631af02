// The map of APIs × steps or ranks: colour and letter of the worst call in each cell.

const FIRST_ROWS = 24;
let axis = "step";
let allRows = false;

function worseOf(one, other) {
  if (Number.isNaN(one)) return other;
  return Number.isNaN(other) || other <= one ? one : other;
}

// Neighbours are drawn together where there are too many of them.
function bucketsOf(values, most) {
  const places = [...new Set(values)].sort((a, b) => a - b);
  const size = Math.ceil(places.length / most);
  const bucketOf = new Map(places.map((value, at) => [value, Math.floor(at / size)]));
  const shown = [];
  for (let at = 0; at < places.length; at += size) shown.push([places[at], places[Math.min(at + size, places.length) - 1]]);
  return { bucketOf, shown };
}

function mapCells() {
  const width = $("map").clientWidth;
  const fitting = Math.max(6, Math.min(64, Math.floor((width - (width < 640 ? 145 : 210)) / 20)));
  // Steps lie side by side and may share a cell; which rank fails is the question itself, so the map rather scrolls.
  const most = axis === "rank" ? 96 : fitting;
  const { bucketOf, shown } = bucketsOf(calls[axis], most);
  const rows = calls.operators.map((name, operator) => ({ operator, name, worst: NaN, verdict: 9, first: Infinity, cells: new Array(shown.length) }));
  let place = 0;
  for (const call of calls.order) {
    const row = rows[calls.operator[call]];
    const at = bucketOf.get(calls[axis][call]);
    const cell = (row.cells[at] ||= { worst: NaN, verdict: 9, count: 0, failing: 0 });
    const [bad, verdict] = [badness(call), calls.verdict[call]];
    cell.count++;
    cell.failing += verdict < 2;
    cell.worst = worseOf(cell.worst, bad);
    cell.verdict = Math.min(cell.verdict, verdict);
    row.worst = worseOf(row.worst, bad);
    row.verdict = Math.min(row.verdict, verdict);
    if (verdict < 2 && row.first === Infinity) row.first = place;
    place++;
  }
  const used = rows.filter((row) => row.verdict < 9);
  const weight = (row) => (Number.isNaN(row.worst) ? -1 : row.worst);
  used.sort((a, b) => Number(a.verdict > 1) - Number(b.verdict > 1) || (a.verdict < 2 ? a.first - b.first : weight(a) === weight(b) ? 0 : weight(b) > weight(a) ? 1 : -1));
  return { rows: used, shown };
}

function rangeText([first, last]) {
  return first === last ? String(first) : `${first}-${last}`;
}

function drawMap() {
  const { rows, shown } = mapCells();
  const palette = colours();
  const visible = allRows ? rows : rows.slice(0, FIRST_ROWS);
  const head = make("tr", {}, make("th", { scope: "col" }, axis === "step" ? "API \\ step" : "API \\ rank"));
  // A label each where they fit, else at every fifth column.
  const wide = shown.some((range) => rangeText(range).length > 3);
  shown.forEach((range, at) => head.append(make("th", { scope: "col", title: rangeText(range) }, !wide || at % 5 === 0 ? (wide ? make("span", { style: "display:inline-block;width:17px;overflow:visible" }, String(range[0])) : rangeText(range)) : "")));
  const body = make("tbody", {});
  const size = Math.max(17, Math.min(44, Math.floor(($("map").clientWidth - 260) / shown.length) - 1));
  visible.forEach((row, at) => {
    const line = make("tr", {}, make("th", { scope: "row", title: row.name }, row.name));
    shown.forEach((range, column) => line.append(mapCell(row, row.cells[column], range, palette, at === 0 && column === 0)));
    body.append(line);
  });
  $("map").replaceChildren(make("table", { class: "map", style: `--cell:${size}px`, role: "grid", "aria-label": `APIs by ${axis}` }, make("thead", {}, head), body));
  $("map-more").hidden = rows.length <= FIRST_ROWS;
  $("map-more").textContent = allRows ? "Show the worst only" : `Show all ${rows.length} APIs`;
  const steps = [-3, -2, -1, 0, 0.01, 1, 2, 3].map((decades) => make("i", { style: `background:${ratioColour(10 ** decades, palette)}` }));
  $("legend").replaceChildren("1/1000 of the limit", ...steps, "1000 × over");
}

function mapCell(row, cell, range, palette, first) {
  const tabindex = first ? 0 : -1;
  if (!cell) return make("td", { class: "void", tabindex, "aria-label": `${row.name}, ${axis} ${rangeText(range)}: no calls` });
  const verdict = calls.verdicts[cell.verdict];
  const words = `${row.name}, ${axis} ${rangeText(range)}: ${verdict}, worst ${ratioText(cell.worst) || "without a ratio"} its limit, ${cell.failing} of ${cell.count} calls fail`;
  const over = cell.worst > 10 || cell.worst === Infinity;
  const ink = over ? palette["on-high"] : cell.worst > 1 ? "#2a1500" : palette["on-low"];
  const choose = () => {
    filterFields({ operator: row.operator, [axis]: rangeText(range), text: "" });
    chooseOperator(row.operator);
    $("h-calls").scrollIntoView();
  };
  const shown = make("td", { tabindex, title: words, "aria-label": words, class: cell.verdict < 2 ? "bad" : null, style: `background:${ratioColour(cell.worst, palette)};color:${ink}`, onclick: choose }, verdict[0].toUpperCase());
  shown.choose = choose;
  return shown;
}

function moveInMap(event) {
  const cell = event.target.closest("td");
  if (!cell) return;
  if (event.key === "Enter" || event.key === " ") {
    event.preventDefault();
    cell.choose?.();
    return;
  }
  const move = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
  if (!move) return;
  event.preventDefault();
  const lines = [...cell.closest("tbody").rows];
  const line = lines[lines.indexOf(cell.parentElement) + move[0]];
  const next = line?.cells[cell.cellIndex + move[1]];
  if (next?.tagName !== "TD") return;
  cell.tabIndex = -1;
  next.tabIndex = 0;
  next.focus();
}

function startMap() {
  for (const choice of document.querySelectorAll("input[name=axis]")) {
    choice.addEventListener("change", () => {
      axis = choice.value;
      drawMap();
    });
  }
  $("map-more").addEventListener("click", () => {
    allRows = !allRows;
    drawMap();
  });
  $("map").addEventListener("keydown", moveInMap);
  let width = $("map").clientWidth;
  addEventListener("resize", () => {
    if ($("map").clientWidth === width) return;
    width = $("map").clientWidth;
    drawMap();
  });
  drawMap();
}
