/* The page of merged results: a small chart of each value over the ranks. */

const CHARTS = 60; /* charts that are drawn at once */
const SIZE = { width: 300, height: 88, floor: 6 };
const EQUAL = 1e-9; /* relative spread up to which ranks are equal: what 12 written decimals may lose */

const FAR = 10; /* times the typical distance from the median: a rank farther than that is marked */
/* Metrics that are 1 where both sides are equal: the bars show what is missing to 1. */
const OF_ONE = /^(cosine|.*thousandths? err ratio)$/i;

const merged = { tables: [], groups: [] };

function setUp(tables) {
  merged.tables = tables.map((table) => {
    const heights = OF_ONE.test(table.metric) ? table.cells.map((cells) => cells.map((cell) => (typeof cell === "number" ? 1 - cell : cell))) : table.cells;
    return { ...table, heights, facts: table.cells.map((cells) => factsOf(cells)) };
  });
  byId("filters").addEventListener("input", (event) => { if (event.target.id === "f-metric") useLog(); list(); });
  byId("filters").addEventListener("submit", (event) => event.preventDefault());
  byId("filters").addEventListener("reset", () => {
    const metric = byId("f-metric").value;
    setTimeout(() => { byId("f-metric").value = metric; useLog(); list(); });
  });
  setUpChoices();
  useLog();
  list();
  setUpButtons((onlyColours) => { if (!onlyColours) { setUpChoices(); list(); } });
  addEventListener("hashchange", follow);
  follow();
}

function setUpChoices() {
  fillSelect("f-show", ["all", "differ", "equal", "texts"].map((key) => [key, text(`merge_${key}`)]));
  fillSelect("f-order", ["worst", "file", "name"].map((key) => [key, text(`merge_order_${key}`)]));
}

/** Return the range of a value over the ranks, the rank farthest from their median, and those far from the others. */
function factsOf(cells) {
  const numbers = cells.flatMap((cell, rank) => (typeof cell === "number" ? [[cell, rank]] : [])).sort((a, b) => a[0] - b[0]);
  const words = cells.some((cell) => typeof cell === "string");
  if (!numbers.length) return { numbers: 0, words, range: 0, differ: new Set(cells.map(String)).size > 1, farthest: -1, far: new Set() };
  const [low, high] = [numbers[0][0], numbers.at(-1)[0]];
  const half = numbers.length >> 1;
  const median = numbers[half][0];
  const differ = high - low > EQUAL * Math.max(Math.abs(low), Math.abs(high));
  const distances = numbers.map(([value, rank]) => [Math.abs(value - median), rank]).sort((a, b) => a[0] - b[0]);
  const far = new Set(differ ? distances.filter(([distance]) => distance > FAR * distances[half][0]).map(([, rank]) => rank) : []);
  return { numbers: numbers.length, words, low, high, range: high - low, differ: differ || numbers.length < cells.length, farthest: differ ? distances.at(-1)[1] : -1, far };
}

const table = () => merged.tables[Number(byId("f-metric").value) || 0];

/** Choose the logarithmic scale where the sizes of the shown metric differ by more than a thousand times. */
function useLog() {
  const sizes = table().heights.flat().filter((cell) => typeof cell === "number" && cell).map(Math.abs);
  const low = sizes.reduce((a, b) => Math.min(a, b), Infinity), high = sizes.reduce((a, b) => Math.max(a, b), 0);
  byId("f-log").checked = high / low > 1000;
}

function list() {
  const { names, heights, facts, metric } = table();
  const named = nameFilter();
  const show = byId("f-show").value, order = byId("f-order").value;
  const keep = { all: () => true, differ: (row) => facts[row].differ, equal: (row) => !facts[row].differ, texts: (row) => facts[row].words }[show];
  const shown = names.map((_, row) => row).filter((row) => named(names[row]) && keep(row));
  if (order === "worst") shown.sort((a, b) => facts[b].range - facts[a].range || facts[b].differ - facts[a].differ || a - b);
  if (order === "name") shown.sort((a, b) => (names[a] < names[b] ? -1 : names[a] > names[b] ? 1 : a - b));
  const log = byId("f-log").checked;
  const common = byId("f-scale").checked ? scaleOf(shown.flatMap((row) => heights[row]), log) : null;
  merged.shown = shown;
  byId("of-one").hidden = !OF_ONE.test(metric);
  byId("count").textContent = text("merge_kept", counted(shown.length), counted(names.length));
  merged.list = growing(byId("list"), shown, CHARTS, (row) => drawChart(row, common ?? scaleOf(heights[row], log)));
  if (!shown.length) byId("list").append(make("p", { class: "muted" }, text("nothing")));
}

/** Return a function from a number to its height from 0 to 1, with the heights of the lowest line and of 0. */
function scaleOf(cells, log) {
  const numbers = cells.filter((cell) => typeof cell === "number");
  if (log) {
    const logs = numbers.map(Math.abs).filter(Boolean).map(Math.log10);
    const low = Math.floor(logs.reduce((a, b) => Math.min(a, b), Infinity)), high = logs.reduce((a, b) => Math.max(a, b), -Infinity);
    const span = high - low || 1;
    return { at: (value) => (value && logs.length ? 0.12 + (0.88 * (Math.log10(Math.abs(value)) - low)) / span : 0), zero: 0 };
  }
  const low = numbers.reduce((a, b) => Math.min(a, b), 0), high = numbers.reduce((a, b) => Math.max(a, b), 0);
  const span = high - low || 1;
  return { at: (value) => (value - low) / span, zero: -low / span };
}

const SVG = "http://www.w3.org/2000/svg";
function drawn(name, attributes, ...children) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

function drawChart(row, scale) {
  const { names, ranks, cells, heights, facts } = table();
  const fact = facts[row], own = cells[row];
  const { width, height, floor } = SIZE;
  const step = width / ranks.length;
  const gap = Math.min(step * 0.25, 3);
  const high = height - floor;
  const bars = own.map((cell, rank) => {
    const is = typeof cell === "number";
    const [top, bottom] = is ? [Math.max(scale.at(heights[row][rank]), scale.zero), Math.min(scale.at(heights[row][rank]), scale.zero)] : [0, 0];
    const tall = is ? Math.max((top - bottom) * high, 1.5) : floor;
    const attributes = { x: rank * step + gap / 2, width: Math.max(step - gap, 0.5), y: is ? high - bottom * high - tall : high, height: tall, class: is ? (fact.far.has(rank) ? "far" : "near") : cell === null ? "missing" : "text" };
    const group = drawn("g", {}, drawn("rect", { class: "back", x: rank * step, width: step, y: 0, height }), drawn("rect", attributes), drawn("title", {}));
    group.lastChild.textContent = safe(`${ranks[rank]}: ${cell === null ? text("merge_missing") : cell}`);
    return group;
  });
  const label = fact.numbers ? text("merge_chart_label", names[row], rounded(fact.low), rounded(fact.high), ranks.length) : names[row];
  const element = make("article", { class: "multiple", "data-row": row },
    make("h3", {}, make("a", { class: "op", href: anchor(names[row]) }, names[row])));
  const picture = drawn("svg", { viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", role: "img", "aria-label": safe(label) },
    drawn("line", { class: "axis", x1: 0, x2: width, y1: high - scale.zero * high, y2: high - scale.zero * high }), ...bars);
  element.append(picture, make("div", { class: "ends" }, make("span", {}, ranks[0]), make("span", {}, ranks.at(-1))), drawFacts(row));
  return element;
}

function drawFacts(row) {
  const { ranks, cells, facts } = table();
  const fact = facts[row], own = cells[row];
  const lines = [];
  const precise = (value) => make("span", { title: String(value) }, rounded(value));
  if (fact.numbers && fact.farthest < 0) lines.push([fact.numbers === ranks.length ? "merge_same" : "merge_others", precise(fact.low)]);
  else if (fact.numbers) {
    lines.push(["merge_range", make("span", {}, precise(fact.low), " – ", precise(fact.high))]);
    lines.push(["merge_farthest", make("span", {}, `${ranks[fact.farthest]}: `, precise(own[fact.farthest]))]);
  }
  const others = new Map();
  own.forEach((cell, rank) => { if (typeof cell === "string") others.set(cell, [...(others.get(cell) ?? []), ranks[rank]]); });
  for (const [words, of] of [...others].slice(0, 4)) lines.push(["merge_no_text", `${listed(of, ranks.length)}: ${words}`]);
  if (others.size > 4) lines.push(["merge_no_text", "…"]);
  const missing = ranks.filter((_, rank) => own[rank] === null);
  if (missing.length) lines.push(["merge_no_row", listed(missing, ranks.length)]);
  return make("dl", { class: "facts" }, ...lines.flatMap(([key, value]) => [make("dt", {}, text(key)), make("dd", {}, value)]));
}

const listed = (names, all) => (names.length === all ? text("merge_same") : names.slice(0, 6).join(", ") + (names.length > 6 ? ` … (${counted(names.length)})` : ""));

/** Go to the chart that the address names. */
function follow() {
  const name = linked();
  if (!name || byId(name)) return;
  const row = table().names.indexOf(name);
  if (row < 0) return;
  if (!merged.shown.includes(row)) {
    byId("f-name").value = "";
    byId("f-show").value = "all";
    list();
  }
  merged.list.showUpTo(merged.shown.indexOf(row));
  document.querySelectorAll(".multiple.active").forEach((one) => one.classList.remove("active"));
  const element = document.querySelector(`.multiple[data-row="${row}"]`);
  element.classList.add("active");
  element.scrollIntoView({ block: "center" });
}

begin(setUp);
