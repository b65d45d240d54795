/* The page of a pre-check: the chart of errors, and the APIs with their calls, worst first. */

const STATUSES = ["error", "warning", "pass", "skip"];
const APIS = 200; /* APIs that are shown at once, */
const CALLS = 10; /* and calls of one, */
const OUTPUTS = 12; /* and outputs of a call */
/* Measures that are no errors: a chart of them would be upside down. */
const UPSIDE_DOWN = new Set(["hundredth", "thousandth", "ten_thousandth"]);
const FIRST = ["max_relative_error", "max_abs_error", "mean_relative_error", "rmse", "ulp_mean", "error_rate", "cosine"];

const check = { byApi: new Map(), outputsOf: [], groups: [] };

function setUp(data) {
  const { calls, outputs } = data;
  Object.assign(check, {
    data, calls, outputs, measures: data.measures,
    api: texts(calls.api), forward: texts(calls.forward), backward: texts(calls.backward), verdict: texts(calls.standard),
    output: texts(outputs.name), dtype: texts(outputs.dtype), shape: texts(outputs.shape),
    standardKey: texts(outputs.standard.en),
    standard: (place) => texts(outputs.standard[language])(place),
    outputMessage: (place) => texts(outputs.message[language])(place),
    callMessage: (place) => texts(calls.message[language])(place),
    direction: (place) => check.output(place).split(".")[0],
  });
  check.outputsOf = calls.name.map(() => []);
  outputs.call.forEach((call, place) => check.outputsOf[call].push(place));
  const worse = (a, b) => outputs.status[a] - outputs.status[b] || number(outputs.distance[b]) - number(outputs.distance[a]) || a - b;
  for (const own of check.outputsOf) own.sort(worse);
  check.worst = check.outputsOf.map((own, call) => {
    const judged = own.filter((place) => outputs.status[place] === calls.status[call]);
    return judged.length ? Math.max(...judged.map((place) => number(outputs.distance[place]))) : 0;
  });
  calls.name.forEach((_, call) => {
    if (!check.byApi.has(check.api(call))) check.byApi.set(check.api(call), []);
    check.byApi.get(check.api(call)).push(call);
  });
  for (const button of document.querySelectorAll("button.count")) button.addEventListener("click", () => showCounted(button.dataset));
  byId("filters").addEventListener("input", list);
  byId("filters").addEventListener("submit", (event) => event.preventDefault());
  byId("filters").addEventListener("reset", () => setTimeout(list));
  setUpChoices();
  setUpChart();
  list(true);
  setUpButtons((onlyColours) => {
    drawChart();
    if (onlyColours) return;
    setUpChoices();
    list();
  });
  addEventListener("hashchange", follow);
  follow();
}

function setUpChoices() {
  const all = ["", text("all")];
  fillSelect("f-status", [all, ...STATUSES.map((name, place) => [String(place), text(`check_${name}`)])]);
  fillSelect("f-direction", [all, ...["forward", "backward"].map((name) => [name, text(`check_${name}`)])]);
  const standards = [...new Set(check.outputs.standard.en.codes)].filter((code) => check.outputs.standard.en.texts[code]);
  byId("label-standard").hidden = !standards.length;
  fillSelect("f-standard", [all, ...standards.map((code) => {
    const place = check.outputs.standard.en.codes.indexOf(code);
    return [check.standardKey(place), check.standard(place)];
  })]);
  fillSelect("f-dtype", [all, ...check.outputs.dtype.texts.filter(Boolean).sort().map((name) => [name, name])]);
  fillSelect("f-order", ["worst", "run", "name"].map((order) => [order, text(`check_order_${order}`)]));
  const chosen = byId("chart-measure").value;
  fillSelect("chart-measure", chartMeasures().map((one) => [one.key, one.key === "cosine" ? `1 − ${one[language]}` : one[language]]));
  if (chosen) byId("chart-measure").value = chosen;
}

/** Show what a number of the table of statuses counts. */
function showCounted({ unit, kind, status }) {
  byId("filters").reset();
  byId("f-status").value = status;
  if (unit === "outputs") byId("f-standard").value = kind;
  else if (kind !== "standard") byId("f-direction").value = kind;
  setTimeout(() => {
    list();
    byId("apis").scrollIntoView();
    byId("f-status").focus({ preventScroll: true });
  }); /* after the event of the reset */
}

/** Return the places of the outputs, and the calls, that the filters keep. */
function kept() {
  const named = nameFilter();
  const value = (id) => byId(id).value;
  const [status, direction, standard, dtype] = ["f-status", "f-direction", "f-standard", "f-dtype"].map(value);
  const level = Number(status);
  const statusOf = (word) => { const place = STATUSES.indexOf(word.toLowerCase()); return place < 0 ? 3 : place; };
  const ofCall = (call) => {
    if (!named(check.calls.name[call])) return false;
    const words = direction ? [check[direction](call)].filter(Boolean) : null;
    if (standard || dtype) {
      return check.outputsOf[call].some((place) =>
        (!standard || check.standardKey(place) === standard) && (!dtype || check.dtype(place) === dtype) &&
        (!direction || check.direction(place) === direction) && (!status || check.outputs[standard ? "own" : "status"][place] === level));
    }
    if (words) return words.some((word) => !status || statusOf(word) === level);
    return !status || check.calls.status[call] === level;
  };
  return ofCall;
}

/** List the APIs with calls that the filters keep. */
function list(openFirst = false) {
  const keep = kept();
  const order = byId("f-order").value || "worst";
  const worse = (a, b) => check.calls.status[a] - check.calls.status[b] || check.worst[b] - check.worst[a] || a - b;
  const groups = [];
  let count = 0;
  for (const [api, calls] of check.byApi) {
    const own = calls.filter(keep);
    if (!own.length) continue;
    count += own.length;
    if (order === "worst") own.sort(worse);
    groups.push({ api, calls: own });
  }
  if (order === "worst") groups.sort((a, b) => worse(a.calls[0], b.calls[0]));
  if (order === "name") groups.sort((a, b) => (a.api < b.api ? -1 : a.api > b.api ? 1 : 0));
  check.groups = groups;
  const opened = new Set([...document.querySelectorAll(".api[open]")].map((one) => one.dataset.api));
  if (openFirst === true && groups.length && check.calls.status[groups[0].calls[0]] < 2) opened.add(groups[0].api);
  check.opened = opened;
  byId("count").textContent = text("check_kept", counted(count), counted(check.calls.name.length));
  const element = byId("list");
  check.list = growing(element, groups, APIS, drawApi);
  if (!groups.length) element.append(make("p", { class: "muted" }, text("nothing")));
}

function badge(status, label = text(`check_${STATUSES[status]}`)) {
  return make("span", { class: `badge ${STATUSES[status]}` }, label);
}

/** Return the status of a direction, or of the standard, with its label. */
function labelled(kind, word) {
  const place = STATUSES.indexOf(word.toLowerCase());
  return badge(place < 0 ? 3 : place, `${text(`check_${kind}`)}: ${place < 0 ? word : text(`check_${STATUSES[place]}`)}`);
}

function drawApi(group) {
  const { api, calls } = group;
  const all = check.byApi.get(api).length;
  const numbers = STATUSES.map((_, status) => calls.filter((call) => check.calls.status[call] === status).length);
  const element = make("details", { class: `api ${STATUSES[Math.min(...calls.map((call) => check.calls.status[call]))]}`, "data-api": api },
    make("summary", {},
      make("span", { class: "op" }, api),
      make("span", { class: "muted" }, calls.length === all ? text("check_of_calls", counted(all)) : text("check_kept", counted(calls.length), counted(all))),
      make("span", { class: "counted" }, ...STATUSES.flatMap((name, status) => (numbers[status] ? [badge(status, `${counted(numbers[status])} ${text(`check_${name}`)}`)] : [])))));
  const body = make("div", { class: "calls" });
  const inner = make("div");
  body.append(inner);
  element.append(body);
  const fill = () => { group.list ??= growing(inner, calls, CALLS, drawCall); };
  element.addEventListener("toggle", () => { if (element.open) fill(); });
  if (check.opened.has(api)) {
    element.open = true;
    fill();
  }
  group.element = element;
  group.fill = fill;
  return element;
}

function drawCall(call) {
  const { calls } = check;
  const name = calls.name[call];
  const directions = [["forward", check.forward(call)], ["backward", check.backward(call)], ["standard", check.verdict(call)]];
  const message = check.callMessage(call);
  const own = check.outputsOf[call];
  const outputs = make("div", { class: "outputs" });
  const element = make("article", { class: "call", "data-call": call },
    make("h3", {}, make("a", { class: "op", href: anchor(name) }, name),
      ...directions.filter(([, word]) => word).map(([direction, word]) => labelled(direction, word))),
    ...(message && !own.some((place) => check.outputMessage(place).includes(message)) ? [make("p", {}, message)] : []),
    make("div", { class: "copy" }, make("code", {}, calls.command[call]),
      make("button", { type: "button", on: { click: (event) => copy(event.target.previousElementSibling.textContent, event.target) } }, text("copy"))),
    outputs);
  growing(outputs, own, OUTPUTS, drawOutput);
  return element;
}

/** Return an output, open if it did not pass; what was measured is drawn when it opens. */
function drawOutput(place) {
  const { outputs } = check;
  const status = outputs.status[place];
  const of = [check.dtype(place), check.shape(place)].filter(Boolean).join(" ");
  const standard = check.standard(place), verdict = texts(outputs.verdict)(place), message = check.outputMessage(place);
  const main = mainMeasure(place);
  const element = make("details", { class: `output ${STATUSES[status]}` },
    make("summary", {}, make("span", { class: "op" }, check.output(place)), " ", badge(outputs.own[place]), " ",
      ...(verdict ? [labelled("standard", verdict), " "] : []),
      ...(main ? [make("span", { class: "main" }, `${main.one[language]} `, digits(main.value)), " "] : []),
      make("span", { class: "muted" }, [of, standard && text("check_by", standard)].filter(Boolean).join(" · "))));
  const fill = () => { if (element.children.length < 2) element.append(...(message ? [make("p", {}, message)] : []), drawMeasures(place)); };
  element.addEventListener("toggle", fill);
  if (status < 2) {
    element.open = true;
    fill();
  }
  return element;
}

/** Return the measure of an output that says most in a line: the one of the chart if it has it. */
function mainMeasure(place) {
  const source = isRatio() ? "ratio" : "device";
  for (const key of [byId("chart-measure").value, ...FIRST]) {
    const one = check.measures.find((measure) => measure.key === key);
    const value = one?.[source]?.[place];
    if (value !== null && value !== undefined) return { one, value };
  }
  return null;
}

function digits(value) {
  if (value === null || value === undefined) return make("span", { class: "muted" }, "–");
  return make("span", { title: String(value) }, rounded(value));
}

/** Return what was measured of an output: a list for one device, a table for two. */
function drawMeasures(place) {
  const cells = check.measures
    .map((one) => ({ one, device: one.device?.[place] ?? null, trusted: one.trusted?.[place] ?? null, ratio: one.ratio?.[place] ?? null, verdict: one.verdict?.[place] ?? null }))
    .filter((cell) => cell.device !== null || cell.trusted !== null || cell.ratio !== null || cell.verdict !== null);
  if (check.data.stage === 1)
    return make("dl", { class: "measures" }, ...cells.map((cell) => make("div", {}, make("dt", {}, cell.one[language]), make("dd", {}, digits(cell.device)))));
  if (!cells.length) return make("span");
  cells.sort((a, b) => (b.verdict !== null) - (a.verdict !== null)); /* what was judged first */
  const columns = ["device", "trusted", "ratio", "verdict"].filter((column) => cells.some((cell) => cell[column] !== null));
  const shownIn = (cell, column) => {
    if (column !== "verdict") return digits(cell[column]);
    const status = STATUSES.indexOf(String(cell.verdict).toLowerCase());
    return cell.verdict === null ? "" : status < 0 ? make("span", {}, cell.verdict) : badge(status);
  };
  return make("div", { class: "scroll" }, make("table", { class: "both" },
    make("thead", {}, make("tr", {}, make("td"), ...columns.map((column) => make("th", { scope: "col" }, text(`check_${column}`))))),
    make("tbody", {}, ...cells.map((cell) => make("tr", {}, make("th", { scope: "row" }, cell.one[language]), ...columns.map((column) => make("td", {}, shownIn(cell, column))))))));
}

/** Open a call: clear filters if they hide it, scroll to it, and mark it. */
function goTo(call, focus = false) {
  const find = () => check.groups.findIndex((group) => group.calls.includes(call));
  let place = find();
  if (place < 0) {
    byId("f-name").value = "";
    for (const id of ["f-status", "f-direction", "f-standard", "f-dtype"]) byId(id).value = "";
    list();
    place = find();
  }
  check.list.showUpTo(place);
  const group = check.groups[place];
  group.element.open = true;
  group.fill();
  group.list.showUpTo(group.calls.indexOf(call));
  document.querySelectorAll(".call.active").forEach((one) => one.classList.remove("active"));
  const element = group.element.querySelector(`[data-call="${call}"]`);
  element.classList.add("active");
  element.scrollIntoView({ block: "start" });
  if (focus) element.querySelector("a").focus({ preventScroll: true });
}

/** Go to the call, or the API, that the address names. */
function follow() {
  const name = linked();
  if (!name || byId(name)) return;
  const call = check.calls.name.indexOf(name);
  const of = call >= 0 ? call : check.byApi.get(name)?.[0] ?? check.calls.name.findIndex((one) => name.startsWith(`${one}.`));
  if (of >= 0) goTo(of);
}

/* -- the chart ------------------------------------------------------------------------------------ */

const chart = { points: [], active: -1 };
const MARGIN = { left: 56, right: 14, top: 12, bottom: 34 };

const isRatio = () => !check.measures.some((one) => one.device) && check.measures.some((one) => one.ratio);
const chartMeasures = () => {
  const source = isRatio() ? "ratio" : "device";
  const found = check.measures.filter((one) => !UPSIDE_DOWN.has(one.key) && one[source]?.some((value) => typeof value === "number"));
  const rank = (one) => (FIRST.includes(one.key) ? FIRST.indexOf(one.key) : FIRST.length);
  return found.sort((a, b) => rank(a) - rank(b));
};

function setUpChart() {
  document.querySelector(".chart").hidden = !chartMeasures().length;
  if (!chartMeasures().length) {
    byId("errors").hidden = true;
    document.querySelector('nav a[href="#errors"]').hidden = true;
    return;
  }
  byId("chart-measure").addEventListener("change", () => { drawChart(); list(); });
  const canvas = byId("chart");
  canvas.addEventListener("pointermove", (event) => point(nearest(event)));
  canvas.addEventListener("click", (event) => { const found = nearest(event); if (found >= 0) goTo(check.outputs.call[chart.points[found].place]); });
  canvas.addEventListener("keydown", (event) => {
    const last = chart.points.length - 1;
    const to = { ArrowRight: chart.active + 1, ArrowLeft: chart.active < 0 ? last : chart.active - 1, Home: 0, End: last }[event.key];
    if (to !== undefined) point(Math.max(0, Math.min(last, to)));
    else if (event.key === "Enter" && chart.active >= 0) goTo(check.outputs.call[chart.points[chart.active].place], true);
    else return;
    event.preventDefault();
  });
  new ResizeObserver(() => drawChart()).observe(canvas);
}

function valueOf(one, source, place) {
  const value = one[source]?.[place];
  if (value === null || value === undefined) return null;
  const found = one.key === "cosine" ? Math.abs(1 - number(value)) : number(value);
  return Number.isNaN(found) ? Infinity : found;
}

/** Return a logarithmic scale from 0 to 1, on which 0 has the lowest place and what is not finite the highest. */
function scaleOf(values) {
  let low = Infinity, high = -Infinity, endless = false;
  for (const value of values) {
    if (value === Infinity) endless = true;
    else if (value > 0) {
      low = Math.min(low, value);
      high = Math.max(high, value);
    }
  }
  const to = high > 0 ? Math.ceil(Math.log10(high)) : 0;
  const from = high > 0 ? Math.min(to - 1, Math.floor(Math.log10(low))) : -1;
  const at = (value) => (value === 0 ? 0 : value === Infinity ? 1 : 0.06 + (0.88 * (Math.log10(value) - from)) / (to - from));
  const ticks = (most) => {
    const step = Math.max(1, Math.ceil((to - from) / Math.max(2, most)));
    const powers = Array.from({ length: Math.floor((to - from) / step) + 1 }, (_, number) => from + number * step);
    return [[0, "0"], ...powers.map((power) => [10 ** power, `1e${power}`]), ...(endless ? [[Infinity, "∞"]] : [])];
  };
  return { at, ticks, from, to };
}

/** Place the points: error by place in the run, or of one device by that of the other; the gravest are drawn last. */
function drawChart() {
  const canvas = byId("chart");
  const one = check.measures.find((measure) => measure.key === byId("chart-measure").value);
  if (!one || !canvas.clientWidth) return;
  const source = isRatio() ? "ratio" : "device";
  const both = source === "device" && one.trusted;
  if (chart.key !== one.key) {
    chart.key = one.key;
    chart.active = -1;
    const points = [];
    for (let place = 0; place < check.outputs.call.length; place++) {
      const y = valueOf(one, source, place);
      const x = both ? valueOf(one, "trusted", place) : place;
      if (y !== null && x !== null) points.push({ place, x, y, status: check.outputs.status[place] });
    }
    chart.points = points.sort((a, b) => a.status - b.status || b.y - a.y);
    chart.scales = ["x", "y"].map((axis) => scaleOf(points.map((point) => point[axis])));
  }
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue(`--${name}`).trim();
  const ratio = devicePixelRatio || 1;
  const [width, height] = [canvas.clientWidth, canvas.clientHeight];
  canvas.width = width * ratio;
  canvas.height = height * ratio;
  const context = canvas.getContext("2d", { willReadFrequently: true });
  context.scale(ratio, ratio);
  context.font = getComputedStyle(canvas).font;
  const inner = { width: width - MARGIN.left - MARGIN.right, height: height - MARGIN.top - MARGIN.bottom };
  const [ofX, ofY] = chart.scales;
  const atY = (value) => MARGIN.top + inner.height * (1 - ofY.at(value));
  const atX = (value) => MARGIN.left + inner.width * (both ? ofX.at(value) : (value + 0.5) / check.outputs.call.length);
  context.strokeStyle = colour("line");
  context.fillStyle = colour("muted");
  context.textBaseline = "middle";
  for (const [value, label] of ofY.ticks(inner.height / 26)) {
    context.beginPath();
    context.moveTo(MARGIN.left, Math.round(atY(value)) + 0.5);
    context.lineTo(width - MARGIN.right, Math.round(atY(value)) + 0.5);
    context.stroke();
    context.textAlign = "right";
    context.fillText(label, MARGIN.left - 6, atY(value));
  }
  context.textAlign = "center";
  for (const [value, label] of both ? ofX.ticks(inner.width / 60) : []) context.fillText(label, atX(value), height - MARGIN.bottom + 11);
  context.fillText(text(both ? "check_axis_trusted" : "check_axis_run"), MARGIN.left + inner.width / 2, height - 8);
  context.setLineDash([5, 4]);
  context.strokeStyle = colour("muted");
  context.beginPath();
  if (both) {
    const [low, high] = [Math.max(ofX.from, ofY.from), Math.min(ofX.to, ofY.to)];
    if (low < high) {
      context.moveTo(atX(10 ** low), atY(10 ** low));
      context.lineTo(atX(10 ** high), atY(10 ** high));
    }
  } else if (source === "ratio" && ofY.from <= 0 && ofY.to >= 0) {
    context.moveTo(MARGIN.left, atY(1));
    context.lineTo(width - MARGIN.right, atY(1));
  }
  context.stroke();
  context.setLineDash([]);
  const colours = ["red", "amber", "green", "muted"].map(colour);
  const isFull = chart.points.length > 10000;
  for (let number = chart.points.length - 1; number >= 0; number--) {
    const point = chart.points[number];
    point.left = atX(point.x);
    point.top = atY(point.y);
    if (isFull && point.status > 1) {
      context.fillStyle = colours[point.status];
      context.fillRect(point.left - 1, point.top - 1, 2, 2);
    } else mark(context, point, colours[point.status]);
  }
  chart.picture = context.getImageData(0, 0, canvas.width, canvas.height);
  chart.idle = both ? "check_chart_both" : source === "ratio" ? "check_chart_ratio" : "check_chart_one";
  drawActive();
}

/** Draw a ring around the active point, and say what it is. */
function drawActive() {
  const context = byId("chart").getContext("2d");
  context.putImageData(chart.picture, 0, 0);
  const active = chart.points[chart.active];
  if (active) {
    context.strokeStyle = getComputedStyle(document.documentElement).getPropertyValue("--text").trim();
    context.lineWidth = 2;
    context.beginPath();
    context.arc(active.left, active.top, 8, 0, 7);
    context.stroke();
  }
  byId("chart-note").textContent = active ? noteOf(active) : text(chart.idle);
}

function mark(context, { left, top, status }, colour) {
  context.fillStyle = colour;
  context.beginPath();
  if (status === 0) context.rect(left - 3.5, top - 3.5, 7, 7);
  else if (status === 1) { context.moveTo(left, top - 5); context.lineTo(left + 4.5, top + 3.5); context.lineTo(left - 4.5, top + 3.5); }
  else context.arc(left, top, 3, 0, 7);
  context.globalAlpha = status < 2 ? 1 : 0.6;
  context.fill();
  context.globalAlpha = 1;
}

function noteOf({ place, x, y, status }) {
  const one = check.measures.find((measure) => measure.key === chart.key);
  const name = `${check.calls.name[check.outputs.call[place]]}.${check.output(place)}`;
  const numbers = chart.idle === "check_chart_both" ? text("check_note_both", rounded(y), rounded(x)) : rounded(y);
  return safe(`${name} · ${text(`check_${STATUSES[status]}`)} · ${one[language]}: ${numbers}`);
}

function nearest(event) {
  let best = -1, least = 400;
  chart.points.forEach((one, number) => {
    const far = (one.left - event.offsetX) ** 2 + (one.top - event.offsetY) ** 2;
    if (far < least) [best, least] = [number, far];
  });
  return best;
}

function point(to) {
  if (to === chart.active) return;
  chart.active = to;
  requestAnimationFrame(drawActive);
}

begin(setUp);
