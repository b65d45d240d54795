/* The filters in the address: "#NAME?name=…&state=…", where NAME is the row or the section that is shown. */

const FILTERS = ["name", "state", "phase", "dtype", "module"];
let lastField = "";

/** Return the filters and the sorting as they are in the form. */
function currentFilters() {
  const filters = new URLSearchParams();
  for (const name of FILTERS) if (byId(`f-${name}`).value) filters.set(name, byId(`f-${name}`).value);
  if (byId("f-headers").checked) filters.set("headers", "1");
  if (grid.sort) filters.set("sort", (grid.sort.down ? "-" : "") + grid.sort.column.id);
  return filters;
}

/** Return an address within the page: the name of a row or a section, and the filters. */
function addressOf(name, filters = currentFilters()) {
  const query = filters.toString();
  return `#${name}${query ? `?${query}` : ""}`;
}

/** Return the name and the filters in the address. */
function addressParts() {
  const [name, ...query] = location.hash.slice(1).split("?");
  return [name, new URLSearchParams(query.join("?"))];
}

/** Write the filters into the address. Typing in one field makes one entry of the history. */
function rememberFilters(field = "") {
  const address = addressOf(addressParts()[0]);
  if (address === (location.hash || "#")) return;
  if (field === "f-name" && lastField === field) location.replace(address);
  else location.hash = address;
  lastField = field;
}

/** Set the form to filters and show the rows that match, unless they are shown already. */
function applyFilters(filters) {
  if (filters.toString() === currentFilters().toString()) return;
  for (const name of FILTERS) {
    const field = byId(`f-${name}`);
    field.value = filters.get(name) || "";
    if (field.selectedIndex === -1) field.value = ""; /* a choice that this page does not have */
  }
  byId("f-headers").checked = filters.has("headers");
  const sort = filters.get("sort") || "";
  const column = grid.columns.find(({ id }) => id === sort.replace(/^-/, ""));
  grid.sort = column ? { column, down: sort.startsWith("-") } : null;
  filter();
}

/** Keep the filters when a link within the page is followed. */
function keepFilters(event) {
  const link = event.target.closest('a[href^="#"]');
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey || !grid.shown) return;
  const name = link.getAttribute("href").slice(1);
  if (!currentFilters().toString()) return;
  event.preventDefault();
  lastField = "";
  const address = addressOf(name);
  if (address === location.hash) follow(); /* the browser does not report an address that stays the same */
  else location.hash = address;
}
