/* The distance of each call's outputs from the golden, in the order of the run, on a logarithmic scale. */

const chart = { points: [], from: 0, to: 0, phase: "", cursor: -1, drag: null, causes: new Set(), box: null };

function setUpChart() {
  const causes = new Set(meta.causes);
  ops.forEach((op, place) => { if (causes.has(op.key)) chart.causes.add(place); });
  const phases = ["forward", "backward", "other_phase"].filter((phase) => ops.some((op) => op.phase === phase));
  fill(byId("chart-phase"), [["", "all"], ...phases.map((phase) => [phase, phase])]);
  document.querySelector(".chart").hidden = false;
  const canvas = byId("chart");
  byId("chart-phase").addEventListener("change", (event) => { chart.phase = event.target.value; showAll(); });
  byId("chart-reset").addEventListener("click", showAll);
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    chart.drag = { start: event.offsetX, end: event.offsetX };
  });
  canvas.addEventListener("pointermove", (event) => {
    if (chart.drag) chart.drag.end = event.offsetX;
    else point(nearest(event.offsetX, event.offsetY));
    drawChart();
  });
  canvas.addEventListener("pointerup", (event) => {
    const drag = chart.drag;
    chart.drag = null;
    if (drag && Math.abs(drag.end - drag.start) > 8) {
      const [first, last] = [drag.start, drag.end].map(placeAt).sort((a, b) => a - b);
      if (last - first >= 1) [chart.from, chart.to] = [Math.floor(first), Math.ceil(last)];
      byId("chart-reset").disabled = false;
    } else {
      const place = nearest(event.offsetX, event.offsetY);
      if (place >= 0) openOp(place);
    }
    drawChart();
  });
  canvas.addEventListener("pointercancel", () => { chart.drag = null; drawChart(); });
  canvas.addEventListener("dblclick", showAll);
  canvas.addEventListener("keydown", (event) => {
    const moves = { ArrowRight: 1, ArrowLeft: -1, PageDown: 25, PageUp: -25, Home: -Infinity, End: Infinity };
    if (event.key in moves) {
      const shown = chart.points.map((one) => one.place);
      let now = shown.indexOf(chart.cursor);
      now = Math.max(0, Math.min(shown.length - 1, now + moves[event.key]));
      point(shown[now] ?? -1);
      drawChart();
    } else if (event.key === "Enter" && chart.cursor >= 0) openOp(chart.cursor);
    else if (event.key === "Escape") showAll();
    else return;
    event.preventDefault();
  });
  new ResizeObserver(drawChart).observe(canvas);
  showAll();
}

function showAll() {
  chart.from = 0;
  chart.to = ops.length;
  byId("chart-reset").disabled = true;
  drawChart();
}

function openOp(place) {
  const op = timed[place];
  if (op.first >= 0) location.hash = addressOf(anchor(op.key).slice(1));
}

/** Point to a call: say below the chart which it is. */
function point(place) {
  chart.cursor = place ?? -1;
  const op = timed[chart.cursor];
  byId("chart-note").textContent = op ? `${safe(op.key)} — ${opText(op)}` : text("chart_help");
}

function opText(op) {
  if (op.out === null) return text(aloneIn(op) || "s_unjudged");
  if (op.out === Infinity) return `≠ (${text("nosize")})`;
  if (op.out === 0) return text("zero");
  return text("distance_judged", rounded(op.out), rounded(op.noise)) + ` · ${text(fateOf(op))}`;
}

const placeAt = (x) => chart.from + ((x - chart.box.left) / chart.box.width) * (chart.to - chart.from);

function nearest(x, y) {
  let best = -1;
  let least = 900;
  for (const one of chart.points) {
    const distance = (one.x - x) ** 2 + (one.y - y) ** 2;
    if (distance < least) [least, best] = [distance, one.place];
  }
  return best;
}

function drawChart() {
  const canvas = byId("chart");
  const width = canvas.clientWidth;
  const height = canvas.clientHeight;
  if (!width || !height) return;
  const scale = window.devicePixelRatio || 1;
  if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
  }
  const context = canvas.getContext("2d");
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.clearRect(0, 0, width, height);
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue(`--${name}`).trim();
  const size = parseFloat(getComputedStyle(canvas).fontSize) || 12;
  context.font = `${size}px ${getComputedStyle(document.body).fontFamily}`;
  let low = 0;
  let high = -Infinity;
  for (const op of ops) {
    if (op.noise > 0) low = Math.min(low, Math.log10(op.noise));
    if (op.out > 0 && op.out < Infinity) {
      low = Math.min(low, Math.log10(op.out));
      high = Math.max(high, Math.log10(op.out));
    }
  }
  low = Math.floor(Math.max(low, -18)) - 1;
  high = Math.ceil(Math.max(high, 0)) + 1;
  const box = (chart.box = { left: size * 4, top: 12, width: width - size * 4 - 10, height: height - size * 2 - 26 });
  const x = (place) => box.left + ((place + 0.5 - chart.from) / Math.max(1, chart.to - chart.from)) * box.width;
  const y = (error) => {
    const log = error === Infinity ? high : error > 0 ? Math.max(low, Math.log10(error)) : low;
    return box.top + box.height * (1 - (log - low) / (high - low));
  };
  context.textBaseline = "middle";
  context.textAlign = "right";
  const every = Math.max(1, Math.ceil((high - low) / Math.max(2, Math.floor(box.height / (size * 2)))));
  for (let power = low; power <= high; power += every) {
    context.strokeStyle = colour("line");
    context.lineWidth = 1;
    context.beginPath();
    context.moveTo(box.left, Math.round(y(10 ** power)) + 0.5);
    context.lineTo(box.left + box.width, Math.round(y(10 ** power)) + 0.5);
    context.stroke();
    context.fillStyle = colour("muted");
    context.fillText(power === low ? text("zero") : power === high ? "≠" : `1e${power}`, box.left - 6, y(10 ** power));
  }
  /* The phases of the run: backward calls stand on a tint. */
  context.fillStyle = colour("tint");
  let start = -1;
  for (let place = chart.from; place <= chart.to; place++) {
    const inside = place < chart.to && timed[place] && timed[place].phase === "backward";
    if (inside && start < 0) start = place;
    if (!inside && start >= 0) {
      context.fillRect(x(start - 0.5), box.top, x(place - 0.5) - x(start - 0.5), box.height);
      start = -1;
    }
  }
  context.save();
  context.beginPath();
  context.rect(box.left - 4, 0, box.width + 8, height);
  context.clip();
  context.strokeStyle = colour("amber");
  context.setLineDash([4, 3]);
  context.beginPath();
  let pen = false;
  for (let place = chart.from; place < chart.to; place++) {
    const op = timed[place];
    if (!op || !(op.noise > 0)) continue;
    if (pen) context.lineTo(x(place), y(op.noise));
    else context.moveTo(x(place), y(op.noise));
    pen = true;
  }
  context.stroke();
  context.setLineDash([]);
  chart.points = [];
  const colours = { within: colour("muted"), unclear: colour("violet"), inherited: colour("blue"), introduced: colour("red") };
  const radius = chart.to - chart.from > 3000 ? 1.6 : chart.to - chart.from > 400 ? 2.4 : 3.6;
  for (const fate of ["within", "unclear", "inherited", "introduced"]) {
    context.fillStyle = colours[fate];
    for (let place = chart.from; place < chart.to; place++) {
      const op = timed[place];
      if (!op || op.out === null || fateOf(op) !== fate || (chart.phase && op.phase !== chart.phase)) continue;
      const spot = { place, x: x(place), y: y(op.out) };
      chart.points.push(spot);
      context.beginPath();
      if (fate === "introduced") {
        context.rect(spot.x - radius, spot.y - radius, 2 * radius, 2 * radius);
      } else context.arc(spot.x, spot.y, radius, 0, 7);
      context.fill();
    }
  }
  /* Calls that are not paired as they were made stand as rings below the scale. */
  context.strokeStyle = colour("amber");
  context.lineWidth = 1.5;
  for (let place = chart.from; place < chart.to; place++) {
    const op = timed[place];
    if (!op || op.out !== null || !aloneIn(op) || (chart.phase && op.phase !== chart.phase)) continue;
    const spot = { place, x: x(place), y: box.top + box.height + radius + 3 };
    chart.points.push(spot);
    context.beginPath();
    context.arc(spot.x, spot.y, radius, 0, 7);
    context.stroke();
  }
  chart.points.sort((a, b) => a.place - b.place);
  const causes = [...chart.causes].map((number) => ops[number]);
  const first = Math.min(...causes.filter((op) => op.key === meta.causes[0]).map((op) => op.time));
  for (const place of causes.map((op) => op.time)) {
    if (place < chart.from || place >= chart.to) continue;
    context.strokeStyle = colour("red");
    context.lineWidth = place === first ? 1.5 : 0.5;
    context.beginPath();
    context.moveTo(x(place), box.top);
    context.lineTo(x(place), box.top + box.height);
    context.stroke();
    if (place === first) {
      const right = x(place) < box.left + box.width * 0.7;
      context.textAlign = right ? "left" : "right";
      context.fillStyle = colour("red");
      context.fillText(text("first_cause"), x(place) + (right ? 6 : -6), box.top + size * 0.7);
    }
  }
  if (chart.cursor >= chart.from && chart.cursor < chart.to && timed[chart.cursor] && timed[chart.cursor].out !== null) {
    context.strokeStyle = colour("text");
    context.lineWidth = 1.5;
    context.beginPath();
    context.arc(x(chart.cursor), y(timed[chart.cursor].out), radius + 4, 0, 7);
    context.stroke();
  }
  if (chart.drag) {
    context.globalAlpha = 0.18;
    context.fillStyle = colour("blue");
    context.fillRect(Math.min(chart.drag.start, chart.drag.end), box.top, Math.abs(chart.drag.end - chart.drag.start), box.height);
    context.globalAlpha = 1;
  }
  context.restore();
  context.textBaseline = "alphabetic";
  context.fillStyle = colour("muted");
  context.textAlign = "left";
  context.fillText(`${counted(chart.from + 1)}`, box.left, height - 6);
  context.textAlign = "right";
  context.fillText(`${counted(chart.to)} ${text("calls")}`, box.left + box.width, height - 6);
}
