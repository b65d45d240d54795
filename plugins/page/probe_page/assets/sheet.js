/* What the pages of a pre-check and of merged ranks share: their data, the buttons, and lists that grow on demand. */

async function unpack(element) {
  const raw = atob(element.textContent);
  const bytes = new Uint8Array(raw.length);
  for (let place = 0; place < raw.length; place++) bytes[place] = raw.charCodeAt(place);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return JSON.parse(await new Response(stream).text());
}

/** Return a function from a place to the text of a column of texts. */
const texts = (column) => (place) => column.texts[column.codes[place]];

const number = (value) => (typeof value === "number" ? value : value === "inf" ? Infinity : value === "-inf" ? -Infinity : NaN);

/** Show a button that appends more items to a list until all are there. */
function growing(list, items, step, draw) {
  let shown = 0;
  const button = make("button", { type: "button", class: "more", on: { click: () => grow(step) } });
  function grow(count) {
    const stop = Math.min(items.length, shown + count);
    const before = document.activeElement === button;
    const made = items.slice(shown, stop).map(draw);
    list.append(...made);
    shown = stop;
    button.textContent = text("sheet_more", counted(items.length - shown));
    if (shown < items.length) list.after(button);
    else button.remove();
    if (before && made.length && shown === items.length) made[0].querySelector("summary, a, button")?.focus();
  }
  list.replaceChildren();
  button.remove();
  list.parentElement.querySelectorAll(":scope > .more").forEach((old) => old.remove());
  grow(step);
  return { showUpTo: (place) => { if (place >= shown) grow(place - shown + 1); } };
}

function fillSelect(id, choices) {
  const select = byId(id);
  const before = select.value;
  select.replaceChildren(...choices.map(([value, label]) => make("option", { value }, label)));
  if (choices.some(([value]) => value === before)) select.value = before;
}

/** Return a test for names by the field of the filter; a pattern that is none is said, and takes all. */
function nameFilter() {
  const pattern = byId("f-name").value.trim();
  const problem = byId("f-problem");
  problem.hidden = true;
  if (!pattern) return () => true;
  try {
    const made = new RegExp(pattern, "i");
    return (name) => made.test(name);
  } catch (error) {
    problem.textContent = text("bad_pattern", safe(error.message));
    problem.hidden = false;
    return () => true;
  }
}

function setUpButtons(redraw) {
  byId("lang").addEventListener("click", () => {
    language = language === "en" ? "zh" : "en";
    byId("lang").textContent = language === "zh" ? "English" : "中文";
    translate();
    for (const element of document.querySelectorAll("[data-en]")) element.textContent = safe(element.dataset[language]);
    redraw();
  });
  byId("theme").addEventListener("click", () => {
    const root = document.documentElement;
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    redraw(true);
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => redraw(true));
  document.addEventListener("keydown", (event) => {
    if (event.key !== "/" || event.target.closest("input, select, textarea")) return;
    event.preventDefault();
    byId("f-name").focus();
  });
}

/** Return the name that the address links to. */
function linked() {
  try {
    return decodeURIComponent(location.hash.slice(1));
  } catch {
    return "";
  }
}

/** Read the data, set the page up, and say where it cannot be shown. */
async function begin(setUp) {
  const loading = document.querySelector(".loading");
  if (typeof DecompressionStream === "undefined") {
    loading.textContent = text("too_old");
    return;
  }
  let data;
  try {
    data = await unpack(byId("data"));
  } catch (error) {
    loading.textContent = text("broken");
    console.error(error);
    return;
  }
  loading.hidden = true;
  setUp(data);
  document.documentElement.dataset.ready = "1";
}
