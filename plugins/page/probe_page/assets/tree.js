/* The model as a tree of modules and calls in the order of the run, forward and backward apart. */

const AT_ONCE = 200;
const GROUP = 100;

function setUpTree() {
  const box = byId("tree");
  const hasModules = ops.some((op) => op.modules.length);
  box.replaceChildren(make("h3", { "data-t": hasModules ? "tree_modules" : "tree_calls" }, text(hasModules ? "tree_modules" : "tree_calls")));
  for (const phase of ["forward", "backward", "other_phase"]) {
    const root = { name: phase, path: "", children: [], index: new Map(), places: 0, bad: 0, error: null, cause: false, first: Infinity };
    for (const op of timed) if (op.phase === phase && op.first >= 0) insert(root, op, op.number);
    if (!root.children.length) continue;
    if (!hasModules && root.children.length > GROUP) group(root);
    box.append(branch(root, true, phase));
  }
}

/** Put calls of a run without modules into groups of equal size. */
function group(root) {
  const leaves = root.children;
  root.children = [];
  for (let start = 0; start < leaves.length; start += GROUP) {
    const children = leaves.slice(start, start + GROUP);
    const node = { name: "", range: [start + 1, start + children.length], path: "", children, places: 0, bad: 0, error: null, cause: false };
    for (const leaf of children) count(node, leaf.op, leaf.cause);
    root.children.push(node);
  }
}

function count(node, op, isCause) {
  node.places += 1;
  if (op.level === "error" || op.level === "drift") node.bad += 1;
  if (fateOf(op) === "introduced") node.introduced = true;
  if (op.out !== null && (node.error === null || op.out > node.error)) node.error = op.out;
  node.cause = node.cause || isCause;
}

function insert(root, op, place) {
  const isCause = chart.causes.has(place);
  let node = root;
  count(node, op, isCause);
  for (const module of op.modules) {
    let child = node.index.get(module);
    if (!child) {
      child = { name: module, path: module, children: [], index: new Map(), places: 0, bad: 0, error: null, cause: false };
      node.index.set(module, child);
      const own = node.children.findIndex((other) => other.leaf && other.op.key === module);
      if (own >= 0) { /* backward, where the module's own call begins before those within it */
        const { op: call, cause } = node.children[own];
        child.op = call;
        count(child, call, cause);
        node.children[own] = child;
      } else node.children.push(child);
    }
    node = child;
    count(node, op, isCause);
  }
  const own = node.index.get(op.key); /* the module's own call, which ends after those within it */
  if (own) {
    own.op = op;
    count(own, op, isCause);
  } else node.children.push({ op, place, leaf: true, cause: isCause });
}

/** Return the part of a module's name that its parent's does not say. */
function shortName(name, parent) {
  const cut = (text) => text.replace(/^Module\./, "").replace(/\.(forward|backward)(\.\d+)?$/, "");
  const [own, outer] = [cut(name), cut(parent).replace(/\.[^.]*$/, "")];
  return outer && own.startsWith(outer + ".") ? own.slice(outer.length + 1) : own;
}

function branch(node, isRoot, parent) {
  const label = node.range ? text("calls_n", counted(node.range[0]), counted(node.range[1])) : isRoot ? text(node.name) : shortName(node.name, parent);
  const state = node.introduced ? "introduced" : node.bad ? "inherited" : node.error === null ? "skip" : "pass";
  const facts = [node.places === 1 ? text("call_one") : `${counted(node.places)} ${text("calls")}`];
  if (node.bad) facts.push(text("differ_n", counted(node.bad)));
  const summary = make("summary", { title: safe(node.path) }, make("i", { class: `dot ${state}` }), make("span", { class: "what" }, label), " ", make("span", { class: "muted" }, facts.join(", ")));
  if (node.error > 0 && node.error < Infinity) summary.append(" ", make("span", { class: "number", title: String(node.error) }, rounded(node.error)));
  if (node.cause) summary.append(" ", make("span", { class: "badge error" }, text("cause")));
  const details = make("details", {}, summary);
  const open = () => {
    if (details.open && !details.dataset.filled) {
      details.dataset.filled = "1";
      if (node.op) details.append(make("a", { class: "leaf", href: anchor(node.op.key) }, text("open_row")));
      more(details, node, 0);
    }
  };
  details.addEventListener("toggle", open);
  if (node.cause || (isRoot && node.children.length <= 30)) {
    details.open = true;
    open();
  }
  return details;
}

/** Append the next children of a node; a node with a cause is shown up to that cause. */
function more(details, node, from) {
  const cause = from ? -1 : node.children.findIndex((child) => child.cause);
  const to = Math.min(node.children.length, Math.max(from + AT_ONCE, cause + 20));
  for (const child of node.children.slice(from, to)) details.append(child.leaf ? leaf(child) : branch(child, false, node.path));
  if (to < node.children.length)
    details.append(make("button", { type: "button", on: { click: (event) => { event.target.remove(); more(details, node, to); } } }, text("show_more", counted(node.children.length - to))));
}

/** Return the state of a call that is not paired as it was made: made by one run alone, or replaced by others. */
function aloneIn(op) {
  if (op.matches & REGION) return "replaced";
  return op.matches === 2 ? "only_target" : op.matches === 4 ? "only_golden" : op.matches & 6 ? "partly" : "";
}

function leaf({ op, cause }) {
  const fate = fateOf(op);
  const only = aloneIn(op);
  const line = make("a", { class: `leaf ${op.level} ${fate} ${only}`, href: anchor(op.key), title: safe(op.key) }, make("i", { class: `dot ${only ? "alone" : fate === "unknown" ? op.level : fate}` }), make("span", { class: "what" }, op.key.replace(/\.(forward|backward)$/, "")));
  if (only) line.append(" ", make("span", { class: "muted" }, text(only)));
  if (op.out !== null && op.out > 0) line.append(" ", make("span", { class: "number", title: String(op.out) }, op.out === Infinity ? "≠" : rounded(op.out)));
  if (fate !== "within" && fate !== "unknown") line.append(" ", make("span", { class: "muted" }, text(fate)));
  if (cause) line.append(" ", make("span", { class: "badge error" }, text("cause")));
  return line;
}
