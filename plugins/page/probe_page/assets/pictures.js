/* Pictures of tensors (probe_page/pictures.py computes them): how values and differences are spread, and where. */

/** The pictures of rows, by the rows' numbers. */
let pictures = {};

async function loadPictures() {
  for (const element of document.querySelectorAll('script[data-block="pictures"]'))
    pictures = JSON.parse(new TextDecoder().decode(await unpacked(element)));
  for (const figure of document.querySelectorAll(".pictures[data-row]")) showEvidence(figure);
}

/** Fill the place for pictures within a cause. */
function showEvidence(figure) {
  const row = find(decodeURIComponent(figure.dataset.row.slice(1)));
  const picture = row >= 0 ? pictures[rows.value(ROW, row)] : undefined;
  figure.hidden = !picture;
  if (picture) figure.replaceChildren(...drawn(picture));
}

const SVG = "http://www.w3.org/2000/svg";
function draws(name, attributes, ...children) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

/** Return a figure: a title, a picture with its ends below it, and a sentence that says the same. */
function figure(title, picture, ends, saying) {
  picture.setAttribute("role", "img");
  picture.setAttribute("aria-label", `${title}: ${saying}`);
  const scale = make("div", { class: "ends" }, ...ends.map((end) => make("span", {}, end)));
  return make("div", { class: "picture" }, make("h4", {}, title), picture, scale, make("p", { class: "muted" }, saying));
}

function drawn(picture) {
  const parts = [valuesOf(picture), differenceOf(picture)];
  if (picture.map.width * picture.map.height > 1) parts.push(mapOf(picture));
  if (picture.every > 1) parts.push(make("p", { class: "muted" }, text("sampled", counted(picture.every))));
  return parts;
}

/** Both sides' values over one range: the golden filled, the target as a line; heights by the root of counts. */
function valuesOf({ values }) {
  const size = values.golden.length;
  const most = Math.sqrt(Math.max(1, ...values.golden, ...values.target));
  const svg = draws("svg", { viewBox: `0 0 ${size * 4} 60`, preserveAspectRatio: "none", class: "histogram" });
  values.golden.forEach((count, place) => {
    const height = (Math.sqrt(count) / most) * 58;
    if (count) svg.append(draws("rect", { class: "golden", x: place * 4, width: 4, y: 60 - height, height }));
  });
  let path = "M0 60";
  values.target.forEach((count, place) => {
    const y = (60 - (Math.sqrt(count) / most) * 58).toFixed(1);
    path += `V${y}H${place * 4 + 4}`;
  });
  svg.append(draws("path", { class: "target", d: path + "V60" }));
  return figure(text("p_values"), svg, [rounded(values.low), rounded(values.high)], text("p_values_say"));
}

/** How many elements differ by how much, on a logarithmic scale; a line where rounding ends. */
function differenceOf({ difference, noise }) {
  const { low, counts, equal, apart } = difference;
  const from = Math.min(low, noise > 0 ? Math.floor(2 * Math.log10(noise)) / 2 : low) - 0.5;
  const to = low + counts.length / 2 + 0.5;
  const bars = Math.max(2, (to - from) * 2);
  const most = Math.sqrt(Math.max(1, ...counts));
  const svg = draws("svg", { viewBox: `0 0 ${bars * 8} 60`, preserveAspectRatio: "none", class: "histogram" });
  let beyond = apart;
  counts.forEach((count, place) => {
    const start = low + place / 2;
    const within = noise > 0 && 10 ** (start + 0.25) <= noise;
    if (!within) beyond += count;
    const height = (Math.sqrt(count) / most) * 58;
    if (count) svg.append(draws("rect", { class: within ? "within" : "error", x: (start - from) * 16, width: 7, y: 60 - height, height }));
  });
  if (noise > 0) {
    const x = (Math.log10(noise) - from) * 16;
    svg.append(draws("line", { class: "floor", x1: x, x2: x, y1: 0, y2: 60 }));
  }
  const said = [text("p_equal", counted(equal))];
  if (counts.length) said.push(text("p_beyond", counted(beyond)));
  if (apart) said.push(text("p_apart", counted(apart)));
  return figure(text("p_difference"), svg, [`1e${Math.round(from)}`, `1e${Math.round(to)}`], said.join(", "));
}

/** Where the worst elements are: the last two axes as a coarse map, dark where elements differ most. */
function mapOf({ map }) {
  const { width, height, shades } = map;
  const svg = draws("svg", { viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", class: `map${height === 1 ? " flat" : ""}`, "shape-rendering": "crispEdges" });
  for (let y = 0; y < height; y++)
    for (let x = 0, end; x < width; x = end) {
      const shade = shades[y * width + x];
      for (end = x + 1; end < width && shades[y * width + end] === shade; ) end++;
      if (shade !== "0") svg.append(draws("rect", { class: `m${shade}`, x, y, width: end - x, height: 1 }));
    }
  const bad = [...shades].filter((shade) => shade !== "0").length;
  return figure(text("p_map"), svg, height > 1 ? [text("p_axes")] : [text("p_axis")], text("p_map_say", counted(bad), counted(width * height)));
}

/** The worst elements with their places and both values. */
function worstOf({ worst }) {
  const line = ([index, target, golden]) => make("tr", {}, make("th", { scope: "row" }, `[${index.join(", ")}]`), make("td", { title: String(target) }, rounded(target)), make("td", { title: String(golden) }, rounded(golden)));
  const head = make("tr", {}, make("th", { scope: "col" }, text("p_element")), make("th", { scope: "col" }, text("target")), make("th", { scope: "col" }, text("golden")));
  return make("table", { class: "sides-table" }, make("thead", {}, head), make("tbody", {}, ...worst.map(line)));
}

/** Return the part of a row's details that shows its tensors, or says why there is none. */
function tensorsOf(row) {
  const title = make("h4", {}, text("p_title"));
  const picture = pictures[rows.value(ROW, row)];
  if (picture) return [title, make("div", { class: "pictures" }, ...drawn(picture)), ...(picture.worst.length ? [make("h4", {}, text("p_worst")), worstOf(picture)] : [])];
  const error = errorOf(row);
  if (error === null || error <= (rows.value(NOISE, row) || 0)) return [];
  return [title, make("p", { class: "muted" }, text(meta.mode === "tensor" ? "p_not_kept" : "p_no_tensors"))];
}
