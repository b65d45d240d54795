/* Several ranks and steps: a line for each, the distance of its calls on a logarithmic scale. */

const many = { from: 0, to: 0, hidden: new Set(), chosen: -1, spots: [], drag: null, box: null, most: 0 };
const INKS = ["blue", "violet", "green", "amber", "red"];
const DASHES = [[], [7, 3], [2, 3]];

/* A colour for each rank, a dash for each step. */
const placeOf = (number) => {
  const [step, rank] = meta.lines.lines[number].place;
  return [rank % INKS.length, (step + Math.floor(rank / INKS.length)) % DASHES.length];
};
const inkOf = (number) => INKS[placeOf(number)[0]];
const dashOf = (number) => DASHES[placeOf(number)[1]];

function setUpRanks() {
  const canvas = byId("ranks-chart");
  many.most = many.to = Math.max(1, ...meta.lines.lines.map((line) => line.calls));
  byId("ranks-legend").replaceChildren(...meta.lines.lines.map((line, number) => {
    const input = make("input", { type: "checkbox", on: { change: (event) => {
      if (event.target.checked) many.hidden.delete(number);
      else many.hidden.add(number);
      drawRanks();
    } } });
    input.checked = true;
    const swatch = make("i", { class: `key ink-${inkOf(number)}` });
    return make("label", { class: "check" }, input, swatch, line.name);
  }));
  if (meta.lines.left) byId("ranks-legend").append(make("span", {}, text("lines_left", counted(meta.lines.left))));
  byId("ranks-reset").addEventListener("click", showAllRanks);
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    many.drag = { start: event.offsetX, end: event.offsetX };
  });
  canvas.addEventListener("pointermove", (event) => {
    if (many.drag) many.drag.end = event.offsetX;
    else pointRank(nearestSpot(event.offsetX, event.offsetY));
    drawRanks();
  });
  canvas.addEventListener("pointerup", (event) => {
    const drag = many.drag;
    many.drag = null;
    if (drag && Math.abs(drag.end - drag.start) > 8) {
      const callAt = (x) => many.from + ((x - many.box.left) / many.box.width) * (many.to - many.from);
      const [first, last] = [drag.start, drag.end].map(callAt).sort((a, b) => a - b);
      if (last - first >= 1) [many.from, many.to] = [Math.max(0, Math.floor(first)), Math.min(many.most, Math.ceil(last))];
      byId("ranks-reset").disabled = false;
    } else openSpot(nearestSpot(event.offsetX, event.offsetY));
    drawRanks();
  });
  canvas.addEventListener("pointercancel", () => { many.drag = null; drawRanks(); });
  canvas.addEventListener("keydown", (event) => {
    const moves = { ArrowRight: 1, ArrowLeft: -1, PageDown: 25, PageUp: -25, Home: -Infinity, End: Infinity };
    if (event.key in moves) {
      pointRank(Math.max(0, Math.min(many.spots.length - 1, many.chosen + moves[event.key])));
      drawRanks();
    } else if (event.key === "Enter") openSpot(many.chosen);
    else if (event.key === "Escape") showAllRanks();
    else return;
    event.preventDefault();
  });
  new ResizeObserver(drawRanks).observe(canvas);
}

function showAllRanks() {
  [many.from, many.to] = [0, many.most];
  byId("ranks-reset").disabled = true;
  drawRanks();
}

function nearestSpot(x, y) {
  let best = -1;
  let least = 900;
  many.spots.forEach((spot, place) => {
    const distance = (spot.x - x) ** 2 + (spot.y - y) ** 2;
    if (distance < least) [least, best] = [distance, place];
  });
  return best;
}

function pointRank(place) {
  many.chosen = place;
  const spot = many.spots[place];
  const size = spot && (spot.error === null ? `≠ (${text("nosize")})` : spot.error === 0 ? text("zero") : text("distance_judged", rounded(spot.error), rounded(spot.noise)));
  byId("ranks-note").textContent = spot ? `${safe(spot.line.name)} · ${safe(meta.lines.ops[spot.op])} — ${size}` : text("ranks_help");
}

function openSpot(place) {
  const spot = many.spots[place];
  if (spot && spot.line.link) location.href = spot.line.link + anchor(meta.lines.ops[spot.op]);
}

function drawRanks() {
  const canvas = byId("ranks-chart");
  const [width, height] = [canvas.clientWidth, canvas.clientHeight];
  if (!width || !height) return;
  const scale = window.devicePixelRatio || 1;
  [canvas.width, canvas.height] = [Math.round(width * scale), Math.round(height * scale)];
  const context = canvas.getContext("2d");
  context.setTransform(scale, 0, 0, scale, 0, 0);
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue(`--${name}`).trim();
  const size = parseFloat(getComputedStyle(canvas).fontSize) || 12;
  context.font = `${size}px ${getComputedStyle(document.body).fontFamily}`;
  const all = meta.lines.lines.flatMap((line) => line.points);
  const logs = all.flatMap(([, , error, noise]) => [error, noise]).filter((value) => value > 0).map(Math.log10);
  const low = Math.floor(Math.max(-18, logs.reduce((least, log) => Math.min(least, log), 0))) - 1;
  const high = Math.ceil(logs.reduce((most, log) => Math.max(most, log), 0)) + 1;
  const box = (many.box = { left: size * 4, top: 12, width: width - size * 4 - 12, height: height - size * 2 - 22 });
  const x = (call) => box.left + ((call - many.from) / Math.max(1, many.to - 1 - many.from)) * box.width;
  const y = (error) => box.top + box.height * (1 - ((error === null ? high : error > 0 ? Math.max(low, Math.log10(error)) : low) - low) / (high - low));
  const stroke = (ink, line, dash, points) => {
    context.strokeStyle = colour(ink);
    context.lineWidth = line;
    context.setLineDash(dash);
    context.beginPath();
    points.forEach(([px, py], place) => (place ? context.lineTo(px, py) : context.moveTo(px, py)));
    context.stroke();
    context.setLineDash([]);
  };
  context.textBaseline = "middle";
  context.textAlign = "right";
  const every = Math.max(1, Math.ceil((high - low) / Math.max(2, Math.floor(box.height / (size * 2)))));
  for (let power = low; power <= high; power += every) {
    const level = Math.round(y(power === low ? 0 : power === high ? null : 10 ** power)) + 0.5;
    stroke("line", 1, [], [[box.left, level], [box.left + box.width, level]]);
    context.fillStyle = colour("muted");
    context.fillText(power === low ? text("zero") : power === high ? "≠" : `1e${power}`, box.left - 6, level);
  }
  context.save();
  context.beginPath();
  context.rect(box.left - 5, 0, box.width + 10, height);
  context.clip();
  const chosen = many.spots[many.chosen];
  many.spots = [];
  meta.lines.lines.forEach((line, number) => {
    if (many.hidden.has(number)) return;
    const shown = line.points.filter(([call]) => call >= many.from - 1 && call <= many.to);
    if (!number) stroke("amber", 1, [4, 3], shown.filter(([, , , noise]) => noise > 0).map(([call, , , noise]) => [x(call), y(noise)]));
    const isChosen = chosen && chosen.line === line;
    stroke(inkOf(number), isChosen ? 3 : 1.4, dashOf(number), shown.map(([call, , error]) => [x(call), y(error)]));
    for (const [call, op, error, noise] of shown) {
      const spot = { x: x(call), y: y(error), line, op, error, noise };
      many.spots.push(spot);
    }
  });
  const first = many.spots.find((spot) => meta.lines.ops[spot.op] === meta.causes[0] && spot.line.name === meta.first);
  if (first) {
    const isLeft = first.x < box.left + box.width * 0.7;
    const label = [`${text("first_cause")} · ${safe(first.line.name)}`, first.x + (isLeft ? 9 : -9), Math.max(size, first.y - size)];
    context.textAlign = isLeft ? "left" : "right";
    context.strokeStyle = colour("ground");
    context.lineWidth = 4;
    context.strokeText(...label);
    context.fillStyle = colour("red");
    context.fillRect(first.x - 5, first.y - 5, 10, 10);
    context.fillText(...label);
  }
  const mark = many.spots[many.chosen];
  if (mark) {
    context.strokeStyle = colour("text");
    context.lineWidth = 1.5;
    context.beginPath();
    context.arc(mark.x, mark.y, 7, 0, 7);
    context.stroke();
  }
  if (many.drag) {
    context.globalAlpha = 0.18;
    context.fillStyle = colour("blue");
    context.fillRect(Math.min(many.drag.start, many.drag.end), box.top, Math.abs(many.drag.end - many.drag.start), box.height);
    context.globalAlpha = 1;
  }
  context.restore();
  context.fillStyle = colour("muted");
  context.textAlign = "left";
  context.fillText(counted(many.from + 1), box.left, height - 8);
  context.textAlign = "right";
  context.fillText(`${counted(many.to)} ${text("calls")}`, box.left + box.width, height - 8);
}
