/* The order of work when the page opens: buttons first, then rows, chart and tree, then the row of the link. */

function setUpButtons() {
  byId("lang").addEventListener("click", () => {
    language = language === "en" ? "zh" : "en";
    byId("lang").textContent = language === "zh" ? "English" : "中文";
    translate();
    if (meta.lines) drawRanks();
    if (rows && grid.shown) {
      setUpChoices();
      redraw();
      drawChart();
      setUpTree();
      setUpRegions();
      for (const figure of document.querySelectorAll(".pictures[data-row]")) showEvidence(figure);
      if (!byId("details").hidden && grid.active >= 0) showDetails(grid.view[grid.active]);
    }
  });
  byId("theme").addEventListener("click", () => {
    const root = document.documentElement;
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    redrawCharts();
  });
  for (const button of document.querySelectorAll(".do-copy"))
    button.addEventListener("click", () => copy(button.previousElementSibling.textContent, button));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redrawCharts);
  /* Print is always light: the picture of the chart follows. */
  for (const event of ["beforeprint", "afterprint"]) addEventListener(event, redrawCharts);
  document.addEventListener("keydown", (event) => {
    const field = event.target.closest("input, select, textarea");
    if (event.key === "/" && !field && byId("f-name")) {
      event.preventDefault();
      byId("f-name").focus();
    } else if (event.key === "Escape" && byId("details") && !byId("details").hidden && !field) hideDetails();
  });
}

function redrawCharts() {
  if (meta.lines) drawRanks();
  if (rows && grid.shown && ops.length) drawChart();
}

/** Show what the address names: the filters, then the row or the section. */
function follow() {
  let [name, filters] = addressParts();
  applyFilters(filters);
  try {
    name = decodeURIComponent(name);
  } catch { /* a hash that was not made here */ }
  if (!name) return;
  if (byId(name)) {
    byId(name).scrollIntoView({ block: "start" });
    return;
  }
  const row = find(name);
  if (row < 0) return;
  goTo(row);
  if (filters.toString() !== currentFilters().toString()) location.replace(addressOf(addressParts()[0]));
  byId("rows").scrollIntoView({ block: "start" });
}

async function start() {
  setUpButtons();
  if (meta.lines) setUpRanks();
  if (!meta.rows) {
    document.documentElement.dataset.ready = "1";
    return;
  }
  const loading = document.querySelector(".loading");
  if (typeof DecompressionStream === "undefined") {
    loading.textContent = text("too_old");
    return;
  }
  try {
    await load();
  } catch (error) {
    loading.textContent = text("broken");
    console.error(error);
    return;
  }
  loading.hidden = true;
  setUpRows();
  if (ops.length) {
    setUpChart();
    setUpTree();
    setUpRegions();
  } else document.getElementById("where").hidden = true;
  await loadPictures();
  startAtCause();
  follow();
  addEventListener("hashchange", follow);
  document.addEventListener("click", keepFilters);
  performance.mark("usable");
  document.documentElement.dataset.ready = "1";
}

start();
