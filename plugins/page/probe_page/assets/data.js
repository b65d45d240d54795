/* The rows and calls, unpacked from the blocks of the page (probe_page/columns.py says how they are packed). */

async function unpacked(element) {
  const raw = atob(element.textContent);
  const bytes = new Uint8Array(raw.length);
  for (let place = 0; place < raw.length; place++) bytes[place] = raw.charCodeAt(place);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/** Columns of numbers and texts, filled block by block. */
class Columns {
  constructor(index) {
    this.names = index.names;
    this.count = index.count;
    this.filled = 0;
    this.numbers = index.names.map(() => null);
    this.codes = index.names.map(() => null);
    this.texts = index.names.map(() => [""]);
    this.isShort = index.names.map(() => false);
    this.named = new Set();
  }

  add(bytes) {
    const view = new DataView(bytes.buffer);
    const size = view.getUint32(0, true);
    const head = JSON.parse(new TextDecoder().decode(bytes.subarray(4, 4 + size)));
    let offset = 4 + size;
    const take = (type) => {
      const width = Number(type[1]);
      const planes = bytes.subarray(offset, offset + width * head.rows);
      offset += planes.length;
      const plain = new Uint8Array(planes.length);
      for (let plane = 0; plane < width; plane++)
        for (let row = 0, from = plane * head.rows; row < head.rows; row++) plain[row * width + plane] = planes[from + row];
      const kinds = { f4: Float32Array, f8: Float64Array, u1: Uint8Array, u2: Uint16Array, u4: Uint32Array };
      return new kinds[type](plain.buffer);
    };
    head.columns.forEach(([number, code, texts], column) => {
      this.texts[column].push(...texts.map(String));
      if (number === "f4") this.isShort[column] = true;
      if (number) (this.numbers[column] ??= new Float64Array(this.count)).set(take(number), this.filled);
      if (code) (this.codes[column] ??= new Uint32Array(this.count)).set(take(code), this.filled);
    });
    this.filled += head.rows;
  }

  /** Return the text or number of a cell. */
  value(column, row) {
    const code = this.codes[column] ? this.codes[column][row] : 0;
    if (code) return this.texts[column][code];
    if (this.named.has(column)) return nameOf(row); /* 0 stands for the name of the row */
    return this.numbers[column] ? this.numbers[column][row] : "";
  }

  /** Return the number of a cell with all its digits: seven if it was kept in 4 bytes. */
  digits(column, row) {
    const value = this.value(column, row);
    return typeof value === "number" && this.isShort[column] && !Number.isInteger(value) ? String(Number(value.toPrecision(8))) : String(value);
  }

  column(name) {
    return this.names.indexOf(name);
  }
}

const LEVELS = meta.levels || [];
const [ROW, OP, STATE, ERROR, NOISE, WHY, NAME] = [0, 1, 2, 3, 4, 5, 6];
const OWN = 7;
let rows = null;
let calls = null;
/** The calls: key, short name, phase, modules (outermost first), stack, first row, rows, level, into, out, noise, matches. */
let ops = [];
/** The calls in the order of time: gradients of parameters, which a table lists with their module, come last of backward. */
let timed = [];

async function load() {
  rows = new Columns(meta.rows);
  calls = new Columns(meta.ops);
  for (const [columns, kind] of [[calls, "ops"], [rows, "rows"]])
    for (const element of document.querySelectorAll(`script[data-block="${kind}"]`)) columns.add(await unpacked(element));
  const place = Object.fromEntries(calls.names.map((name, column) => [name, column]));
  const number = (name, row) => {
    const value = calls.value(place[name], row);
    return value === "" ? null : typeof value === "number" ? value : Infinity;
  };
  for (let row = 0; row < calls.count; row++) {
    const key = calls.value(place.key, row);
    const modules = calls.value(place.modules, row);
    ops.push({
      key,
      phase: phaseOf(key),
      modules: modules === "" ? [] : modules.split("\n").reverse(),
      stack: String(calls.value(place.stack, row)),
      first: -1,
      last: -1,
      level: LEVELS[calls.value(place.level, row)],
      into: number("into", row),
      out: number("out", row),
      noise: calls.value(place.noise, row),
      matches: calls.value(place.matches, row),
    });
  }
  for (let row = 0; row < rows.count; row++) {
    const op = ops[rows.value(OP, row)];
    if (op) {
      if (op.first < 0) op.first = row;
      op.last = row;
    }
  }
  if (ops.length) for (const header of ["NPU Name", "Bench Name"]) rows.named.add(rows.names.indexOf(header, OWN));
  ops.forEach((op, number) => (op.number = number));
  orderInTime();
}

function orderInTime() {
  const isGradient = (op) => op.key.split(".").includes("parameters_grad");
  const last = ops.findLastIndex((op) => op.phase === "backward" && !isGradient(op));
  const before = ops.filter((op, number) => number <= last && !isGradient(op));
  const gradients = ops.filter((op, number) => number <= last && isGradient(op));
  timed = [...before, ...gradients, ...ops.slice(last + 1)];
  timed.forEach((op, place) => (op.time = place));
}

function phaseOf(key) {
  const parts = key.split(".");
  if (parts.includes("backward") || parts.includes("parameters_grad")) return "backward";
  return parts.includes("forward") ? "forward" : "other_phase";
}

/** Return the op of a row; undefined in a table without ops. */
const opOf = (row) => ops[rows.value(OP, row)];
const levelOf = (row) => (rows.value(STATE, row) < 0 ? undefined : LEVELS[rows.value(STATE, row) & 7]);
const matchOf = (row) => Math.max(0, rows.value(STATE, row) >> 3) & 3;
/** Return true for a row of calls that do not line up in both runs. */
const isRegion = (row) => rows.value(STATE, row) >= 32;

function nameOf(row) {
  const name = rows.value(NAME, row);
  const op = opOf(row);
  return name[0] === "=" && op ? op.key + name.slice(1) : name.slice(1);
}

/** Return the distance of a row: a number, Infinity where it has no size, null where it was not judged. */
function errorOf(row) {
  const value = rows.value(ERROR, row);
  return value === "" ? null : typeof value === "number" ? value : Infinity;
}

/** Return what becomes of a call: introduced, inherited, within, unclear (its inputs were not compared), unknown. */
function fateOf(op) {
  if (op.out === null) return "unknown";
  if (op.out <= op.noise) return "within";
  if (op.into === null) return "unclear";
  return op.into <= op.noise ? "introduced" : "inherited";
}

/** Return the row with a name, or the first row of the op with that key; -1 for none. */
function find(name) {
  let best = -1;
  for (let number = 0; number < ops.length; number++) {
    const op = ops[number];
    if (op.first < 0 || !name.startsWith(op.key)) continue;
    if (name === op.key) return op.first;
    if (name[op.key.length] === ".")
      for (let row = op.first; row <= op.last; row++) if (nameOf(row) === name) best = row;
    if (best >= 0) return best;
  }
  if (!ops.length) for (let row = 0; row < rows.count; row++) if (nameOf(row) === name) return row;
  return best;
}
