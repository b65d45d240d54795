/* Calls that do not line up: those of the target beside those of the golden that stand in their place. */

const REGION = 8; /* bit of a call's matches; the others are a pair, the target alone and the golden alone */
const MOST_REGIONS = 100;
const MOST_CALLS = 60;
const opIn = (name) => name.replace(/\.(input|output|parameters|debug)\..*$/, "").replace(/\.parameters_grad\..*$/, ".parameters_grad");

/** Return the groups of calls that follow each other and do not line up. */
function regionsOf() {
  const found = [];
  let last = null;
  for (const op of ops) {
    if (!(op.matches & REGION) || op.first < 0) continue;
    if (last === null || last.number !== op.number - 1) found.push([]);
    found[found.length - 1].push(op);
    last = op;
  }
  return found;
}

/** Return the calls of both sides in a group, each with the row that it is seen in. */
function sidesOf(group) {
  const sides = [new Map(), new Map()];
  const columns = [at("NPU Name"), at("Bench Name")];
  for (const op of group)
    for (let row = op.first; row <= op.last; row++) {
      if (opOf(row) !== op) continue;
      columns.forEach((column, side) => {
        const name = column < 0 ? "N/A" : rows.value(column, row);
        const key = opIn(name);
        if (name !== "N/A" && name !== "" && !(sides[side].get(key) <= row)) sides[side].set(key, row);
      });
    }
  return sides.map((side) => new Map([...side].sort((one, other) => one[1] - other[1])));
}

function setUpRegions() {
  const groups = regionsOf();
  const box = byId("regions");
  box.hidden = !groups.length;
  if (!groups.length) return;
  const parts = groups.slice(0, MOST_REGIONS).map((group) => {
    const sides = sidesOf(group);
    const title = text("region_sizes", counted(sides[0].size), counted(sides[1].size));
    const details = make("details", {}, make("summary", {}, make("span", { class: "op" }, group[0].key), " ", make("span", { class: "muted" }, title)));
    details.addEventListener("toggle", () => {
      if (details.open && details.children.length === 1) details.append(regionTable(sides));
    });
    if (groups.length === 1) details.open = true;
    return details;
  });
  box.replaceChildren(make("h3", {}, text("regions"), " ", make("span", { class: "muted" }, counted(groups.length))), make("p", { class: "muted" }, text("regions_say")), ...parts);
  if (groups.length > MOST_REGIONS) box.append(make("p", { class: "muted" }, `${text("and_more")} ${counted(groups.length - MOST_REGIONS)}`));
}

function regionTable(sides) {
  const lists = sides.map((side, number) => {
    const items = [...side].slice(0, MOST_CALLS).map(([key, row]) => make("li", {}, make("a", { class: "op", href: anchor(nameOf(row)) }, key)));
    if (side.size > MOST_CALLS) items.push(make("li", { class: "muted" }, `${text("and_more")} ${counted(side.size - MOST_CALLS)}`));
    if (!side.size) items.push(make("li", { class: "muted" }, text("region_none")));
    return make("div", {}, make("h4", {}, text(number ? "golden" : "target")), make("ol", {}, ...items));
  });
  return make("div", { class: "side-by-side" }, ...lists);
}
