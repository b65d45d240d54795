/* The details of a row: both sides, metrics, evidence, the call's stack and its other values. */

const FRAME = /^File (.*?), line (\d+), in ([^,\n]+?)(?:,\s*([\s\S]*))?$/;
const FRAMEWORK = /site-packages|dist-packages|[\\/]lib[\\/]python|torch[\\/]nn[\\/]modules|<frozen/;

function hideDetails() {
  byId("details").hidden = true;
  byId("grid").focus({ preventScroll: true });
}

/** Return the place of a column by its header; -1 if the table has none. */
const at = (header) => rows.names.indexOf(header, OWN);

function showDetails(row) {
  const box = byId("details");
  const op = opOf(row);
  const name = nameOf(row);
  const level = levelOf(row);
  const used = new Set();
  const take = (header) => {
    const column = at(header);
    if (column >= 0) used.add(column);
    return column < 0 ? null : rows.value(column, row);
  };
  const parts = [];
  const link = make("button", { type: "button", on: { click: (event) => copy(location.href.split("#")[0] + anchor(name), event.target) } }, text("copy_link"));
  const copyName = make("button", { type: "button", on: { click: (event) => copy(name, event.target) } }, text("copy_name"));
  const close = make("button", { type: "button", class: "close", on: { click: hideDetails } }, text("close"));
  parts.push(make("div", { class: "bar-of-tools" }, link, copyName, close));
  parts.push(make("h3", { class: "op" }, name));
  if (level) {
    const error = errorOf(row);
    const noise = rows.value(NOISE, row);
    const line = make("p", {}, make("span", { class: `badge ${level}` }, text(`${level}_level`)));
    if (matchOf(row)) line.append(" ", text(matchOf(row) === 1 ? "only_target" : "only_golden"));
    if (error !== null && error !== Infinity && noise !== "") {
      line.append(" ", make("span", { title: `${error} / ${noise}` }, text("distance_judged", rounded(error), rounded(noise))));
      if (error > noise && noise > 0) line.append(" · ", text("times", rounded(error / noise)));
    }
    parts.push(line);
  }
  const why = rows.value(WHY, row);
  if (why) parts.push(make("h4", {}, text("why")), make("ul", {}, ...why.split("\n").map((line) => make("li", {}, line))));
  const message = take("Err_message");
  if (message) parts.push(make("h4", {}, text("message")), make("p", {}, message));
  const sides = [["Name", "Name"], ["Dtype", "Dtype"], ["Tensor Shape", "Tensor Shape"], ["Requires_grad", "Requires_grad"], ["max", "max"], ["min", "min"], ["mean", "mean"], ["l2norm", "l2norm"]];
  const table = make("table", { class: "sides-table" }, make("thead", {}, make("tr", {}, make("td", {}), make("th", { scope: "col" }, text("target")), make("th", { scope: "col" }, text("golden")))));
  const body = make("tbody");
  const line = (label, target, golden) => {
    if (target === null && golden === null) return;
    const cells = [target, golden].map((value) => make("td", { title: safe(value), class: target !== golden ? "differs" : null }, safe(rounded(value))));
    body.append(make("tr", {}, make("th", { scope: "row" }, label), ...cells));
  };
  for (const [field] of sides) {
    const target = take(`NPU ${field}`);
    const golden = take(`Bench ${field}`);
    line(field, target, golden);
  }
  line("MD5", take("NPU MD5"), take("BENCH MD5"));
  if (body.children.length) {
    table.append(body);
    parts.push(table);
  }
  parts.push(...tensorsOf(row));
  const metrics = [];
  rows.names.slice(OWN).forEach((header, place) => {
    const column = OWN + place;
    if (used.has(column)) return;
    const value = rows.value(column, row);
    if (value === "") return;
    const label = meta.words["column " + header] && !byId("f-headers").checked ? text("column " + header) : header;
    const cell = make("dd", { title: safe(value) }, safe(rounded(value, meta.percent.includes(header))));
    const limit = (meta.limits || {})[header];
    if (limit && typeof value === "number") cell.append(" ", make("span", { class: "muted limit" }, limit));
    metrics.push(make("dt", { title: header }, label), cell);
  });
  if (metrics.length) parts.push(make("h4", {}, text("metrics")), make("dl", { class: "facts" }, ...metrics));
  if (op) {
    const list = make("ul", { class: "values" });
    for (let other = op.first; other <= op.last && other < op.first + 200; other++) {
      if (opOf(other) !== op) continue;
      const place = nameOf(other);
      const short = place.startsWith(op.key + ".") ? place.slice(op.key.length + 1) : place;
      const error = errorOf(other);
      const label = `${short} ${error === null ? "" : error === Infinity ? "≠" : rounded(error)}`;
      const item = make("li", { class: levelOf(other) }, other === row ? make("b", {}, label) : make("a", { href: anchor(place) }, label));
      const maker = producerOf(other);
      if (maker) item.append(" ← ", make("a", { href: anchor(maker.key) }, maker.key));
      list.append(item);
    }
    parts.push(make("h4", {}, text("its_rows")), list);
    if (list.textContent.includes("←")) parts.push(make("p", { class: "muted" }, text("from_say")));
    if (op.modules.length) parts.push(make("h4", {}, text("module")), make("p", { class: "path" }, ...op.modules.map((module) => make("span", {}, module))));
    parts.push(make("h4", {}, text("stack")), op.stack ? stackOf(op.stack) : make("p", { class: "muted" }, text("no_stack")));
  }
  box.replaceChildren(...parts);
  box.hidden = false;
  box.scrollTop = 0;
}

/** Return the frames of a stack: those of the program plain, those of the framework dimmed. */
function stackOf(stack) {
  const list = make("ol", { class: "stack" });
  for (const frame of stack.split("\u001e")) {
    const found = FRAME.exec(frame.trim());
    const item = make("li", { class: FRAMEWORK.test(frame) ? "framework" : null });
    if (found) {
      item.append(make("span", { class: "file" }, found[1]), make("b", {}, ":" + found[2]), " ", make("span", { class: "muted" }, found[3]));
      if (found[4]) item.append(make("pre", {}, found[4].trim()));
    } else item.append(frame);
    list.append(item);
  }
  return list;
}
