/* The table: filters, sorting, columns, virtual scrolling, keys. */

let HEIGHT = 28; /* of a row, in pixels; set from the size of the page's text */
const SPARE = 8;
const NARROW = 620;
const grid = { view: new Uint32Array(0), columns: [], chosen: new Set(), sort: null, active: -1, pool: [], names: null };

/** Describe all columns that can be shown. */
function allColumns() {
  const own = [
    { id: "number", label: () => text("c_number"), value: (row) => rows.value(ROW, row), width: 70, number: true },
    { id: "name", label: () => text("c_name"), value: nameOf, width: 360, sticky: true },
    { id: "level", label: () => text("c_level"), value: (row) => levelOf(row), width: 126, level: true },
    { id: "error", label: () => text("c_error"), value: errorOf, width: 120, number: true, distance: true },
  ];
  const percent = new Set(meta.percent);
  const table = rows.names.slice(OWN).map((header, place) => ({
    id: header,
    label: () => (byId("f-headers").checked ? header : meta.words["column " + header] ? text("column " + header) : header),
    value: (row) => rows.value(OWN + place, row),
    digits: (row) => rows.digits(OWN + place, row),
    width: /Name$|message|Data_name/.test(header) ? 300 : /Shape|Dtype/.test(header) ? 130 : 120,
    number: rows.numbers[OWN + place] !== null && !rows.named.has(OWN + place),
    percent: percent.has(header),
  }));
  return ops.length ? [...own, ...table] : [own[0], ...table];
}

const USUAL = ["number", "name", "level", "error", "NPU Dtype", "NPU Tensor Shape", "Cosine", "MaxAbsErr", "Max diff", "MaxRelativeErr", "NormRelativeErr", "NPU MD5", "BENCH MD5", "Err_message"];

function setUpRows() {
  grid.columns = allColumns();
  const known = grid.columns.map((column) => column.id);
  grid.chosen = new Set(ops.length ? USUAL.filter((id) => known.includes(id)) : known);
  if (known.includes("Cosine")) grid.chosen.delete("MaxRelativeErr");
  if (ops.length && byId("grid").clientWidth < NARROW) grid.chosen = new Set(["name", "level", "error"]);
  setUpFilters();
  setUpChoices();
  const element = byId("grid");
  let isAsked = false;
  element.addEventListener("scroll", () => {
    if (!isAsked) requestAnimationFrame(() => { isAsked = false; draw(); });
    isAsked = true;
  }, { passive: true });
  element.addEventListener("pointerover", explain);
  element.addEventListener("keydown", onKey);
  element.querySelector(".body").addEventListener("click", (event) => {
    const line = event.target.closest(".line");
    if (line && !getSelection().toString()) activate(Number(line.dataset.place), true);
  });
  new ResizeObserver(() => { if (element.clientWidth !== grid.width) redraw(); else draw(); }).observe(element);
  filter();
}

function setUpFilters() {
  const dtypes = new Set();
  for (const header of ["NPU Dtype", "Bench Dtype"]) {
    const column = rows.column(header);
    if (column >= 0) for (const name of rows.texts[column].slice(1)) if (name !== "N/A") dtypes.add(name);
  }
  const phases = ["forward", "backward", "other_phase"].filter((phase) => ops.some((op) => op.phase === phase));
  fill(byId("f-state"), ["all", "s_differ", "s_rounding", "s_warning", "s_matched", "s_one", "s_region", "s_unjudged"].map((key) => [key === "all" ? "" : key, key]));
  fill(byId("f-phase"), [["", "all"], ...phases.map((phase) => [phase, phase])]);
  fill(byId("f-dtype"), [["", "all"], ...[...dtypes].sort().map((name) => [name, null])]);
  const modules = new Set();
  for (const op of ops) for (const module of op.modules) if (modules.size < 2000) modules.add(module);
  byId("modules").replaceChildren(...[...modules].map((name) => make("option", { value: safe(name) })));
  const form = byId("filters");
  let waiting = 0;
  form.addEventListener("input", (event) => {
    if (event.target.closest("#columns")) return;
    const field = event.target.id;
    clearTimeout(waiting);
    waiting = setTimeout(() => {
      if (field === "f-headers") redraw();
      else filter();
      rememberFilters(field);
    }, field === "f-name" ? 120 : 0);
  });
  form.addEventListener("reset", () => setTimeout(() => { grid.sort = null; filter(); rememberFilters(); }));
  form.addEventListener("submit", (event) => event.preventDefault());
}

/** Fill a select with [value, key of its text]; a value without a key is its own text. */
function fill(select, options) {
  const value = select.value;
  select.replaceChildren(...options.map(([name, key]) => make("option", { value: name, "data-t": key }, key ? text(key) : name)));
  select.value = options.some(([name]) => name === value) ? value : "";
}

function setUpChoices() {
  const box = byId("columns").querySelector(".choices");
  box.replaceChildren(
    ...grid.columns.map((column) => {
      const input = make("input", { type: "checkbox", on: { change: (event) => {
        if (event.target.checked) grid.chosen.add(column.id);
        else if (grid.chosen.size > 1) grid.chosen.delete(column.id);
        else event.target.checked = true;
        redraw();
      } } });
      input.checked = grid.chosen.has(column.id);
      return make("label", { class: "check" }, input, " ", column.label());
    }),
  );
}

const STATES = {
  s_matched: (row) => matchOf(row) === 0,
  s_differ: (row) => levelOf(row) === "error" || levelOf(row) === "drift",
  s_rounding: (row) => { const error = errorOf(row); return error !== null && error > (rows.value(NOISE, row) || 0); },
  s_warning: (row) => levelOf(row) === "warning",
  s_region: isRegion,
  s_one: (row) => matchOf(row) > 0,
  s_unjudged: (row) => levelOf(row) === "skip" || !levelOf(row),
};

/** Show the rows that match all filters. */
function filter() {
  const problem = byId("f-problem");
  let pattern = null;
  problem.hidden = true;
  try {
    if (byId("f-name").value) pattern = new RegExp(byId("f-name").value, "i");
  } catch (error) {
    problem.textContent = text("bad_pattern", safe(error.message));
    problem.hidden = false;
    return;
  }
  if (pattern && !grid.names) grid.names = Array.from({ length: rows.count }, (_, row) => nameOf(row));
  const state = STATES[byId("f-state").value];
  const phase = byId("f-phase").value;
  const module = byId("f-module").value;
  const dtype = byId("f-dtype").value;
  const dtypes = ["NPU Dtype", "Bench Dtype"].map((header) => rows.column(header)).filter((column) => column >= 0);
  const goodOps = phase || module
    ? ops.map((op) => (!phase || op.phase === phase) && (!module || op.key.includes(module) || op.modules.some((name) => name.includes(module))))
    : null;
  const kept = new Uint32Array(rows.count);
  let count = 0;
  for (let row = 0; row < rows.count; row++) {
    if (goodOps && !goodOps[rows.value(OP, row)]) continue;
    if (state && !state(row)) continue;
    if (dtype && !dtypes.some((column) => rows.value(column, row) === dtype)) continue;
    if (pattern && !pattern.test(grid.names[row])) continue;
    kept[count++] = row;
  }
  const active = grid.active >= 0 ? grid.view[grid.active] : -1;
  grid.view = kept.subarray(0, count);
  if (grid.sort) sortRows();
  grid.active = grid.view.indexOf(active);
  byId("grid").scrollTop = 0;
  redraw();
}

/** Compare two cells: numbers before texts, what was not judged last. */
function order(first, second) {
  const kinds = [first, second].map((value) => (value === null || value === "" ? 2 : typeof value === "number" ? 0 : 1));
  if (kinds[0] !== kinds[1]) return kinds[0] - kinds[1];
  if (kinds[0] === 0) return first - second;
  return kinds[0] === 1 ? (first < second ? -1 : first > second ? 1 : 0) : 0;
}

function sortRows() {
  const { column, down } = grid.sort;
  const rank = (row) => (column.level ? LEVELS.indexOf(levelOf(row)) : column.value(row));
  const values = Array.from(grid.view, rank);
  const places = Uint32Array.from(values.keys());
  const blank = (value) => value === null || value === "";
  places.sort((a, b) => {
    if (blank(values[a]) || blank(values[b])) return order(values[a], values[b]) || a - b;
    const sign = order(values[a], values[b]);
    return (down ? -sign : sign) || a - b;
  });
  grid.view = places.map((place) => grid.view[place]);
}

function sortBy(column) {
  const same = grid.sort && grid.sort.column.id === column.id;
  const down = same ? !grid.sort.down : Boolean(column.number || column.level) && column.id !== "number";
  grid.sort = { column, down };
  filter();
  byId("grid").querySelectorAll(".head button")[grid.shown.indexOf(column)].focus({ preventScroll: true });
  rememberFilters();
}

/** Draw the head and all rows anew. */
function redraw() {
  const element = byId("grid");
  const shown = grid.columns.filter((column) => grid.chosen.has(column.id));
  grid.shown = shown;
  grid.width = element.clientWidth;
  const narrow = grid.width < NARROW;
  const scale = parseFloat(getComputedStyle(document.documentElement).fontSize) / 15;
  const widths = shown.map((column) => (narrow ? Math.min(column.width, column.sticky ? 150 : column.level ? 108 : 78) : Math.round(column.width * scale)));
  HEIGHT = Math.round(28 * Math.max(1, scale));
  element.style.setProperty("--height", `${HEIGHT}px`);
  const total = widths.reduce((sum, width) => sum + width, 0);
  const grow = shown.findIndex((column) => column.sticky);
  element.style.setProperty("--columns", widths.map((width, place) => (place === grow || (grow < 0 && place === shown.length - 1) ? `minmax(${width}px, 1fr)` : `${width}px`)).join(" "));
  element.style.setProperty("--total", `${total}px`);
  element.setAttribute("aria-rowcount", grid.view.length + 1);
  element.setAttribute("aria-colcount", shown.length);
  const head = element.querySelector(".head");
  head.replaceChildren(
    ...shown.map((column, place) => {
      const sorted = grid.sort && grid.sort.column.id === column.id;
      const label = column.label() + (sorted ? (grid.sort.down ? " ▾" : " ▴") : "");
      return make(
        "div",
        {
          role: "columnheader", "aria-colindex": place + 1, class: column.sticky ? "sticky" : null,
          "aria-sort": sorted ? (grid.sort.down ? "descending" : "ascending") : "none",
        },
        make("button", { type: "button", title: column.id, on: { click: () => sortBy(column) } }, label),
      );
    }),
  );
  const wide = head.querySelector(".sticky");
  grid.fit = wide ? Math.floor((wide.clientWidth - 16) / (HEIGHT * 0.247)) : 0;
  const body = element.querySelector(".body");
  body.style.height = `${Math.max(1, grid.view.length) * HEIGHT}px`;
  body.replaceChildren();
  grid.pool = [];
  if (!grid.view.length) body.append(make("p", { class: "muted nothing" }, text("nothing")));
  const parts = [text("rows_of", counted(grid.view.length), counted(rows.count))];
  if (meta.leftOut) parts.push(text("left_out", counted(meta.leftOut)));
  byId("count").textContent = parts.join("; ");
  draw();
}

/** Draw the rows that can be seen. */
function draw() {
  const element = byId("grid");
  if (!grid.shown) return;
  const first = Math.max(0, Math.floor(element.scrollTop / HEIGHT) - SPARE);
  const last = Math.min(grid.view.length, Math.ceil((element.scrollTop + element.clientHeight) / HEIGHT) + SPARE);
  const body = element.querySelector(".body");
  const free = [];
  const there = new Set();
  for (const line of grid.pool) {
    const place = Number(line.dataset.place);
    if (place < first || place >= last) free.push(line);
    else there.add(place);
  }
  for (let place = first; place < last; place++) {
    if (there.has(place)) continue;
    let line = free.pop();
    if (!line) {
      line = make("div", { class: "line", role: "row" }, ...grid.shown.map((column) => make("div", { role: "gridcell", class: column.sticky ? "sticky" : column.number ? "number" : null }, document.createTextNode(""))));
      grid.pool.push(line);
      body.append(line);
    }
    drawLine(line, place);
  }
  for (const line of free) {
    line.remove();
    grid.pool.splice(grid.pool.indexOf(line), 1);
  }
  mark();
}

function drawLine(line, place) {
  const row = grid.view[place];
  line.dataset.place = place;
  line.id = `line-${place}`;
  line.setAttribute("aria-rowindex", place + 2);
  line.style.transform = `translateY(${place * HEIGHT}px)`;
  const level = levelOf(row) || "none";
  const kind = `line ${level}${matchOf(row) === 1 ? " only-target" : matchOf(row) === 2 ? " only-golden" : ""}${isRegion(row) ? " region" : ""}`;
  if (line.dataset.kind !== kind) line.className = line.dataset.kind = kind;
  let cell = line.firstElementChild;
  for (const column of grid.shown) {
    const shown = shownIn(column, row, level);
    if (column.sticky) cell.title = shown;
    cell.firstChild.data = column.sticky ? fitted(shown, grid.fit) : shown;
    cell = cell.nextElementSibling;
  }
}

function shownIn(column, row, level) {
  if (column.level) return level === "none" ? "" : text(`${level}_level`);
  const value = column.value(row);
  if (column.distance) return value === null ? "–" : value === Infinity ? "≠" : rounded(value);
  const shown = rounded(value, column.percent);
  return typeof value === "number" ? shown : safe(shown);
}

/** Give a cell its title when the pointer is over it: all digits of a number, what judged a distance. */
function explain(event) {
  const cell = event.target.closest("[role=gridcell]");
  if (!cell || cell.title) return;
  const column = grid.shown[[...cell.parentNode.children].indexOf(cell)];
  const row = grid.view[cell.parentNode.dataset.place];
  if (!column || column.level || column.sticky) return;
  const value = column.value(row);
  if (column.distance) cell.title = value === null ? "" : distanceText(row);
  else cell.title = safe(column.digits ? column.digits(row) : value);
  cell.addEventListener("pointerleave", () => cell.removeAttribute("title"), { once: true });
}

/** Return a name with a gap in its middle if it is too long: its end says most. */
function fitted(name, most) {
  if (name.length <= most || most < 8) return name;
  const tail = Math.ceil(most * 0.6);
  return `${name.slice(0, most - tail - 1)}…${name.slice(-tail)}`;
}

function distanceText(row) {
  const error = errorOf(row);
  const noise = rows.value(NOISE, row);
  if (error === Infinity) return text("nosize");
  return noise === "" ? rows.digits(ERROR, row) : text("distance_judged", rows.digits(ERROR, row), rows.digits(NOISE, row));
}

function mark() {
  for (const line of grid.pool) {
    const active = Number(line.dataset.place) === grid.active;
    if (line.classList.contains("active") === active && line.hasAttribute("aria-selected")) continue;
    line.classList.toggle("active", active);
    line.setAttribute("aria-selected", active);
  }
  const id = grid.active >= 0 ? `line-${grid.active}` : "";
  byId("grid").setAttribute("aria-activedescendant", byId(id) ? id : "");
}

/** Make a place of the view active, scroll to it, and open its details if asked. */
function activate(place, open = false) {
  if (!grid.view.length) return;
  grid.active = Math.max(0, Math.min(grid.view.length - 1, place));
  const element = byId("grid");
  const top = grid.active * HEIGHT;
  const room = element.clientHeight - element.querySelector(".head").offsetHeight - HEIGHT;
  if (top < element.scrollTop) element.scrollTop = top;
  else if (top > element.scrollTop + room) element.scrollTop = top - room;
  draw();
  if (open || !byId("details").hidden) showDetails(grid.view[grid.active]);
}

function onKey(event) {
  if (event.target !== byId("grid")) return; /* a heading */
  const page = Math.max(1, Math.floor(byId("grid").clientHeight / HEIGHT) - 2);
  const moves = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
  if (event.key in moves && !event.altKey && !event.ctrlKey && !event.metaKey) {
    const place = grid.active < 0 ? (moves[event.key] === Infinity ? grid.view.length - 1 : 0) : grid.active + moves[event.key];
    activate(place);
  } else if (event.key === "Enter") activate(grid.active, true);
  else if (event.key === "Escape") hideDetails();
  else return;
  event.preventDefault();
}

/** Scroll to the first cause, so that the table does not open at calls that agree. */
function startAtCause() {
  const row = meta.causeRow ? find(meta.causeRow) : -1;
  const place = row < 0 ? -1 : grid.view.indexOf(row);
  if (place < 0) return;
  byId("grid").scrollTop = Math.max(0, (place - 4) * HEIGHT);
  activate(place);
}

/** Show a row: clear filters if they hide it, scroll to it, open its details. */
function goTo(row) {
  let place = grid.view.indexOf(row);
  if (place < 0) {
    applyFilters(new URLSearchParams());
    place = grid.view.indexOf(row);
  }
  const element = byId("grid");
  element.scrollTop = Math.max(0, (place - 4) * HEIGHT);
  activate(place, true);
}
