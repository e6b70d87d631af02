// Charts, drawn by Bokeh, which is unpacked when the first one is wanted.

const SMALLEST = 1e-6;
const MANY_RANKS = 8;
const LINES = ["#4c8dd6", "#e08a1e", "#3aa57a", "#c75b9b", "#8f7ad9", "#b5a02a", "#45b0c4", "#d9605a"];
let plotting = null;

function bokeh() {
  plotting ||= unpack(taken("plotting")).then((source) => {
    document.head.append(make("script", {}, source));
    return window.Bokeh;
  });
  return plotting;
}

function logged(ratio) {
  return Math.max(SMALLEST, Math.min(1e9, ratio));
}

async function figure(place, options, draw) {
  const Bokeh = await bokeh();
  const palette = colours();
  const plot = Bokeh.Plotting.figure({
    sizing_mode: "stretch_width", height: 260, toolbar_location: null, tools: options.tools ?? "xpan,xwheel_zoom,reset",
    background_fill_color: palette.paper, border_fill_color: palette.paper, outline_line_color: palette.line, ...options.figure,
  });
  for (const side of [plot.xaxis, plot.yaxis]) {
    for (const name of ["axis_line_color", "major_tick_line_color"]) side[name] = palette.dim;
    side.minor_tick_line_color = null;
    side.major_label_text_color = side.axis_label_text_color = palette.dim;
    side.axis_label_text_font_style = "normal";
  }
  for (const grid of [plot.xgrid, plot.ygrid]) grid.grid_line_color = palette.line;
  draw(plot, palette, Bokeh);
  // In a frame of its own: a chart that is drawn again meanwhile takes the place of this one.
  const frame = make("div", {});
  place.replaceChildren(frame);
  await Bokeh.Plotting.show(plot, frame);
}

function limitLine(plot, palette, Bokeh, dimension) {
  plot.add_layout(new Bokeh.Span({ location: 1, dimension, line_color: palette.error, line_dash: [5, 4], line_width: 1.5 }));
}

// The worst call of every step, by rank, or over all ranks where they are many.
function growth(operator) {
  const lines = new Map();
  const ranks = new Set();
  for (let call = 0; call < calls.count; call++) if (calls.operator[call] === operator) ranks.add(calls.rank[call]);
  for (const call of calls.order) {
    const bad = badness(call);
    if (calls.operator[call] !== operator || Number.isNaN(bad)) continue;
    const name = ranks.size > MANY_RANKS ? `worst of ${ranks.size} ranks` : `rank ${calls.rank[call]}`;
    if (!lines.has(name)) lines.set(name, new Map());
    const line = lines.get(name);
    line.set(calls.step[call], worseOf(line.get(calls.step[call]) ?? NaN, bad));
  }
  return new Map([...lines].sort((a, b) => a[0].localeCompare(b[0], "en", { numeric: true })));
}

async function drawTime() {
  const operator = Number($("time-operator").value);
  const lines = growth(operator);
  const name = calls.operators[operator] ?? "";
  const ratios = [...lines.values()].flatMap((line) => [...line.values()]).map(logged);
  const worst = ratios.reduce((a, b) => Math.max(a, b), 0);
  $("time").setAttribute("aria-label", `${name}: ${lines.size} lines, worst ${ratioText(worst)} its limit`);
  if (!lines.size) {
    $("time").replaceChildren(make("p", {}, "No call of this API has a ratio to a limit."));
    return;
  }
  // The limit is always in the picture.
  const y_range = [ratios.reduce((a, b) => Math.min(a, b), 1) / 1.5, Math.max(worst, 1) * 1.5];
  await figure($("time"), { figure: { y_axis_type: "log", y_range, x_axis_label: "step", y_axis_label: "worst ratio to the limit" } }, (plot, palette, Bokeh) => {
    limitLine(plot, palette, Bokeh, "width");
    const items = [...lines].map(([label, line], at) => {
      const x = [...line.keys()];
      const y = [...line.values()].map(logged);
      const renderer = plot.line(x, y, { line_color: LINES[at % LINES.length], line_width: 2 });
      if (x.length <= 200) plot.scatter(x, y, { size: 6, fill_color: LINES[at % LINES.length], line_color: null });
      return new Bokeh.LegendItem({ label: { value: label }, renderers: [renderer] });
    });
    if (lines.size > 1) plot.add_layout(new Bokeh.Legend({ items, label_text_color: palette.ink, background_fill_color: palette.paper, border_line_color: null, padding: 0, spacing: 0 }), "right");
    plot.xaxis.ticker = new Bokeh.BasicTicker({ min_interval: 1 });
    plot.add_tools(new Bokeh.HoverTool({ tooltips: [["step", "@x"], ["ratio", "@y"]] }));
  });
}

function spreadOfDtypes() {
  const found = calls.names.dtype.map(() => []);
  for (let call = 0; call < calls.count; call++) {
    const bad = badness(call);
    if (!Number.isNaN(bad)) found[calls.dtype[call]].push(bad);
  }
  return found
    .map((ratios, dtype) => ({ name: calls.names.dtype[dtype] || "no tensor", ratios: ratios.sort((a, b) => (a === b ? 0 : a - b)) }))
    .filter((entry) => entry.ratios.length)
    .map(({ name, ratios }) => ({ name, count: ratios.length, failing: ratios.filter((ratio) => ratio > 1).length, median: ratios[ratios.length >> 1], high: ratios[Math.floor((ratios.length - 1) * 0.99)], worst: ratios.at(-1) }))
    .sort((a, b) => (a.worst === b.worst ? 0 : a.worst - b.worst));
}

async function drawDtypes() {
  const found = spreadOfDtypes();
  const words = found.map((entry) => `${entry.name}: ${entry.failing} of ${entry.count} calls over the limit, worst ${ratioText(entry.worst)}`).reverse();
  $("dtype").setAttribute("aria-label", words.join("; ") || "no ratios");
  if (!found.length) {
    $("dtype").replaceChildren(make("p", {}, "No call has a ratio to a limit."));
    return;
  }
  const labels = found.map((entry) => `${entry.name} (${entry.count})`);
  await figure($("dtype"), { tools: "", figure: { x_axis_type: "log", y_range: labels, x_axis_label: "ratio to the limit", height: Math.max(150, 70 + 26 * found.length) } }, (plot, palette, Bokeh) => {
    limitLine(plot, palette, Bokeh, "height");
    plot.hbar({ y: labels, left: found.map((entry) => logged(entry.median)), right: found.map((entry) => logged(entry.high) * 1.02), height: 0.4, fill_color: palette.below, line_color: null });
    plot.scatter({ x: found.map((entry) => logged(entry.worst)), y: labels, size: 9, line_color: null, fill_color: found.map((entry) => (entry.worst > 1 ? palette.error : palette.pass)) });
  });
}

function chooseOperator(operator) {
  if (Number($("time-operator").value) === operator) return;
  $("time-operator").value = String(operator);
  drawTime();
}

function startCharts() {
  const names = calls.operators.map((name, operator) => ({ name, operator })).sort((a, b) => (a.name < b.name ? -1 : 1));
  $("time-operator").append(...names.map(({ name, operator }) => make("option", { value: operator }, name)));
  let worst = -1;
  // The operator of the first failing call in execution order, else of the worst call.
  for (const call of calls.order) {
    if (calls.verdict[call] === 0) {
      worst = call;
      break;
    }
    if (worst < 0 || badness(call) > badness(worst) || Number.isNaN(badness(worst))) worst = call;
  }
  if (worst >= 0) $("time-operator").value = String(calls.operator[worst]);
  $("time-operator").addEventListener("change", drawTime);
  return Promise.all([drawTime(), drawDtypes()]);
}
