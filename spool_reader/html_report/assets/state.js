// The calls as columns, what the filters say, and the calls that pass them.

const ORDERS = { rank: "number", step: "number", seq: "number", ratio: "number", verdict: "number" };
const listeners = [];
let calls = null;

function readCalls(data) {
  const { columns, names } = data;
  const count = columns.rank.length;
  const found = {
    count,
    names,
    operators: data.operators,
    verdicts: data.verdicts,
    rank: Float64Array.from(columns.rank),
    step: Float64Array.from(columns.step),
    seq: Float64Array.from(columns.seq),
    session: Int32Array.from(columns.session),
    api: Int32Array.from(columns.api),
    phase: Int32Array.from(columns.phase),
    standard: Int32Array.from(columns.standard),
    dtype: Int32Array.from(columns.dtype),
    message: Int32Array.from(columns.message),
    verdict: Uint8Array.from(columns.verdict),
    // -1 stands for infinite, -2 for none: JSON has neither.
    ratio: Float64Array.from(columns.ratio, (ratio) => (ratio === -1 ? Infinity : ratio === -2 ? NaN : ratio)),
    operator: Int32Array.from(columns.api, (api) => data.operator_of_api[api]),
    opening: new Map(data.opening.map((call, at) => [call, at])),
    piece: data.piece,
  };
  found.order = Int32Array.from({ length: count }, (_, at) => at);
  found.order.sort((a, b) => found.step[a] - found.step[b] || found.seq[a] - found.seq[b] || found.rank[a] - found.rank[b]);
  return found;
}

// How bad a call is: its ratio, or without one its verdict alone.
function badness(call) {
  const ratio = calls.ratio[call];
  return Number.isNaN(ratio) ? (calls.verdict[call] === 0 ? Infinity : NaN) : ratio;
}

const filters = { text: "", verdicts: null, operator: -1, rank: null, step: null, dtype: -1, phase: -1 };
const sorting = { column: "order", descending: false };

function passing() {
  const wanted = filters.text.trim().toLowerCase().split(/\s+/).filter(Boolean);
  // A word is sought once in each name, not once in each call.
  const hits = wanted.map((word) =>
    ["api", "message", "standard", "session", "phase", "dtype"].map((name) => [calls[name], calls.names[name].map((text) => text.toLowerCase().includes(word))]).filter(([, has]) => has.includes(true))
  );
  const found = new Int32Array(calls.count);
  let count = 0;
  for (const call of calls.order) {
    if (filters.verdicts && !filters.verdicts.has(calls.verdict[call])) continue;
    if (filters.operator >= 0 && calls.operator[call] !== filters.operator) continue;
    if (filters.rank && !filters.rank(calls.rank[call])) continue;
    if (filters.step && !filters.step(calls.step[call])) continue;
    if (filters.dtype >= 0 && calls.dtype[call] !== filters.dtype) continue;
    if (filters.phase >= 0 && calls.phase[call] !== filters.phase) continue;
    if (!hits.every((hit) => hit.some(([column, has]) => has[column[call]]))) continue;
    found[count++] = call;
  }
  return sorted(found.subarray(0, count));
}

function sorted(found) {
  const { column, descending } = sorting;
  if (column !== "order") {
    let keys = calls[column];
    if (column === "ratio") keys = Float64Array.from(calls.ratio, (ratio) => (Number.isNaN(ratio) ? -1 : ratio));
    else if (!ORDERS[column]) {
      const names = calls.names[column];
      const places = new Int32Array(names.length);
      [...names.keys()].sort((a, b) => (names[a] < names[b] ? -1 : 1)).forEach((name, place) => (places[name] = place));
      keys = Int32Array.from(calls[column], (name) => places[name]);
    }
    // Sorting is stable: calls that are equal stay in execution order. Infinite less infinite is no number.
    const sign = descending ? -1 : 1;
    found.sort((a, b) => (keys[a] === keys[b] ? 0 : keys[a] < keys[b] ? -sign : sign));
  } else if (descending) found.reverse();
  return found;
}

function onChange(listener) {
  listeners.push(listener);
}

function changed() {
  for (const listener of listeners) listener();
}

function setFilters(values) {
  Object.assign(filters, values);
  changed();
}

function findCall(session, rank, step, seq) {
  for (let call = 0; call < calls.count; call++) {
    if (calls.seq[call] === seq && calls.step[call] === step && calls.rank[call] === rank && calls.names.session[calls.session[call]] === session) return call;
  }
  return -1;
}
