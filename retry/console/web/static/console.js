// Keys, selection, completion, charts, and how old what a page shows is. Every page works without it.
(() => {
  "use strict";
  const find = (query, within = document) => within.querySelector(query);
  const all = (query, within = document) => [...within.querySelectorAll(query)];
  const { writeTimes, isLocal, hour } = window.times;

  // ---- Rows: which one the keys are about, and which are selected.
  let current = "";

  // A row that nobody has named is known by its place.
  const rows = () => all("tr[data-row]").map((row, n) => { row.id ||= `row-${n}`; return row; });
  const rowAt = () => rows().find((row) => row.id === current);

  function markCurrent() {
    for (const row of rows()) {
      if (row.id === current) row.setAttribute("aria-current", "true");
      else row.removeAttribute("aria-current");
    }
  }

  function move(by) {
    const list = rows();
    if (!list.length) return;
    const at = list.findIndex((row) => row.id === current);
    const row = list[at < 0 ? (by > 0 ? 0 : list.length - 1) : Math.min(list.length - 1, Math.max(0, at + by))];
    current = row.id;
    markCurrent();
    const link = find("a[href]", row);
    if (link) link.focus({ preventScroll: true });
    row.scrollIntoView({ block: "nearest" });
  }

  function select() {
    const box = rowAt() && find("input[type=checkbox]", rowAt());
    if (!box) return;
    box.checked = !box.checked;
    countSelected();
  }

  function countSelected() {
    const boxes = all("tr[data-row] input[type=checkbox]");
    const chosen = boxes.filter((box) => box.checked).length;
    const told = find("#selected-count");
    if (told) told.textContent = chosen ? `(${chosen})` : "";
    const button = find("button[data-act=rows]");
    if (button) button.disabled = chosen === 0;
    const page = find("#select-page");
    if (page) {
      page.hidden = false;
      page.checked = chosen > 0 && chosen === boxes.length;
      page.indeterminate = chosen > 0 && chosen < boxes.length;
    }
  }

  function act() {
    const ofRows = find("[data-act=rows]");
    const target = ofRows && !ofRows.disabled ? ofRows : find("[data-act=all]");
    if (target) target.click();
  }

  document.addEventListener("change", (event) => {
    if (event.target.id === "select-page") {
      for (const box of all("tr[data-row] input[type=checkbox]")) box.checked = event.target.checked;
    }
    if (event.target.matches("#select-page, tr[data-row] input[type=checkbox]")) countSelected();
  });

  document.addEventListener("focusin", (event) => {
    const row = event.target.closest("tr[data-row]");
    if (!row) return;
    current = row.id;
    markCurrent();
  });

  // ---- Keys.
  function isTyping(element) {
    return element.matches("input:not([type=checkbox], [type=radio], [type=button]), textarea, select") || element.isContentEditable;
  }

  // Who speaks to the machine, or slips, can switch keys of one letter off; the help stays where its button is.
  const OFF = "retry-keys-off";
  const areKeysOn = () => localStorage.getItem(OFF) === null;

  document.addEventListener("change", (event) => {
    if (event.target.id !== "keys-on") return;
    if (event.target.checked) localStorage.removeItem(OFF);
    else localStorage.setItem(OFF, "1");
  });

  function help() {
    const dialog = find("#help");
    if (dialog && !dialog.open) dialog.showModal();
  }

  function openRow() {
    const link = rowAt() && find("a[href]", rowAt());
    if (link) link.click();
  }

  // After `g` the next letter says which page; whoever waits has changed their mind.
  let goesUntil = 0;
  const goNext = () => { goesUntil = Date.now() + 2_000; };

  function goTo(key) {
    const link = all("#pages a[data-key]").find((each) => each.dataset.key === key);
    if (link) link.click();
    return link !== undefined;
  }

  const KEYS = {
    "/": () => { const filter = find("#filter"); if (filter) { filter.focus(); filter.select(); } },
    j: () => move(1), k: () => move(-1), x: select, a: act, g: goNext, "?": help,
  };

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing || find("dialog[open]")) return;
    if (isTyping(event.target)) {
      if (event.key === "Escape" && !find("#completions li")) event.target.blur();
      return;
    }
    if (!areKeysOn()) return;
    const goes = Date.now() < goesUntil;
    goesUntil = 0;
    // A link or a button that has the focus is what Enter is for.
    const opens = event.key === "Enter" && !event.target.closest("a, button, summary, input");
    const run = goes && goTo(event.key) ? () => {} : opens && rowAt() ? openRow : KEYS[event.key];
    if (!run) return;
    event.preventDefault();
    run();
  });

  // ---- Completion of the filter.
  const options = () => all("#completions [role=option]");
  const chosenOption = () => options().find((option) => option.getAttribute("aria-selected") === "true");

  function choose(option) {
    const input = find("#filter");
    for (const each of options()) each.setAttribute("aria-selected", String(each === option));
    if (option) {
      input.setAttribute("aria-activedescendant", option.id);
      option.scrollIntoView({ block: "nearest" });
    } else {
      input.removeAttribute("aria-activedescendant");
    }
  }

  function take(option) {
    const input = find("#filter");
    input.value = option.dataset.value;
    closeCompletions();
    input.focus();
    // What it becomes next: a field is completed by its values.
    if (input.value.endsWith(":")) input.dispatchEvent(new Event("input", { bubbles: true }));
  }

  function closeCompletions() {
    const list = find("#completions");
    if (list) list.replaceChildren();
    toldCompletions();
  }

  function toldCompletions() {
    const input = find("#filter[role=combobox]");
    if (!input) return;
    input.setAttribute("aria-expanded", String(options().length > 0));
    input.removeAttribute("aria-activedescendant");
  }

  document.addEventListener("keydown", (event) => {
    if (event.target.id !== "filter" || !options().length) return;
    const list = options(), at = list.indexOf(chosenOption());
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      const next = event.key === "ArrowDown" ? at + 1 : at < 0 ? list.length - 1 : at - 1;
      choose(list[next] || null);
      event.preventDefault();
    } else if ((event.key === "Enter" || event.key === "Tab") && at >= 0) {
      take(list[at]);
      event.preventDefault();
    } else if (event.key === "Escape") {
      closeCompletions();
      event.preventDefault();
    }
  });

  document.addEventListener("mousedown", (event) => {
    const option = event.target.closest("#completions [role=option]");
    if (!option || event.button !== 0) return;
    event.preventDefault();
    take(option);
  });

  document.addEventListener("focusout", (event) => {
    if (event.target.id === "filter") closeCompletions();
  });

  // ---- Charts: drawn from the table that stands beside each.
  const plots = new Map();

  function seriesOf(figure) {
    const lines = all("table[data-series] tbody tr", figure);
    const seconds = lines.map((line) => Number(find("[data-x]", line).dataset.x) / 1000);
    const names = all("table[data-series] thead th", figure).slice(1).map((cell) => cell.textContent);
    const values = names.map((_, n) => lines.map((line) => Number(all("[data-y]", line)[n].dataset.y)));
    return { names, data: [seconds, ...values] };
  }

  function drawChart(figure) {
    const place = find(".plot", figure), { names, data } = seriesOf(figure);
    if (!place || data[0].length < 2) return;
    const drawn = plots.get(place);
    const width = Math.max(200, place.clientWidth);
    if (drawn) {
      if (drawn.width !== width) drawn.setSize({ width, height: 200 });
      if (JSON.stringify(drawn.data) !== JSON.stringify(data)) drawn.setData(data);
      return;
    }
    const style = getComputedStyle(document.documentElement), of = (name) => style.getPropertyValue(name).trim();
    const colours = [of("--link"), of("--good")], axis = { stroke: of("--soft"), grid: { stroke: of("--line"), width: 1 } };
    // A bar begins where its time does, and one of nothing is not seen.
    const bars = figure.dataset.chart === "bars" ? uPlot.paths.bars({ size: [0.9, 40], align: 1 }) : undefined;
    const series = names.map((label, n) => ({
      label, stroke: colours[n % 2], width: bars ? 0 : 2, fill: bars ? colours[n % 2] : undefined, paths: bars,
      dash: n ? [6, 4] : undefined, points: { show: !bars }, value: (_, count) => count == null ? "" : count.toLocaleString("en"),
    }));
    const step = data[0][1] - data[0][0];
    plots.set(place, new uPlot({
      scales: { x: { range: (_, from, to) => [from, bars ? to + step : to] }, y: { range: (_, __, most) => [0, Math.max(1, most * 1.05)] } },
      width, height: 200, series: [{ label: isLocal() ? "Time" : "UTC", value: "{YYYY}-{MM}-{DD} {HH}:{mm}" }, ...series], axes: [
        { ...axis, values: (_, seconds) => seconds.map((each) => hour(each * 1000)) },
        { ...axis, size: 60, incrs: [1, 2, 5].flatMap((n) => [...Array(8).keys()].map((power) => n * 10 ** power)).sort((a, b) => a - b) },
      ],
      tzDate: (seconds) => isLocal() ? new Date(seconds * 1000) : uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC"),
      cursor: { drag: { x: false, y: false } },
    }, data, place));
  }

  function drawCharts() {
    if (!window.uPlot) return;
    for (const place of plots.keys()) {
      if (!place.isConnected) { plots.get(place).destroy(); plots.delete(place); }
    }
    all("figure[data-chart]").forEach(drawChart);
  }

  // Colours are those of the system's setting.
  function drawAnew() {
    for (const [place, plot] of plots) { plot.destroy(); plots.delete(place); }
    drawCharts();
  }

  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAnew);
  document.addEventListener("times:changed", drawAnew);
  addEventListener("resize", drawCharts);

  // ---- Fresh data: htmx morphs it in, and connects again by itself; meanwhile the page says that it is old.
  function toldOld(text) {
    const place = find("#freshness"), time = place && find("time", place);
    if (!time) return;
    const badge = document.createElement("span");
    badge.className = "badge bad";
    badge.textContent = "Not live";
    time.dataset.age = "";
    place.replaceChildren(badge, " As of ", time, `: ${text}`);
    writeTimes();
  }

  const SIGNED_OUT = "you are signed out; load this page again to sign in.";
  document.addEventListener("htmx:sse:error", (event) => toldOld(
    event.detail.status === 401 ? SIGNED_OUT : "the console does not answer; this page is tried to be kept fresh again.",
  ));
  // Whatever has ended a stream: until the next one has said how old the page is, nobody knows.
  document.addEventListener("htmx:sse:before:connection", (event) => {
    const isTold = find("#freshness .badge.bad");
    if (event.detail.connection.attempt > 0 && !isTold) toldOld("what kept it fresh has ended; it is tried again.");
  });
  // Where the first connection fails, nothing tries again.
  for (const failed of ["htmx:error", "htmx:response:error"]) {
    document.addEventListener(failed, (event) => { if (event.target.id === "stream") toldOld("load this page again."); });
  }

  // ---- The title says what the page shows now: how many, and how many of them are new.
  function writeTitle() {
    const said = find("#live [data-title]");
    if (said) document.title = `${said.dataset.title} · retry`;
  }

  for (const swapped of ["htmx:after:swap", "htmx:sse:after:message"]) {
    document.addEventListener(swapped, () => {
      markCurrent();
      countSelected();
      writeTimes();
      writeTitle();
      drawCharts();
      toldCompletions();
    });
  }

  // ---- Copy what stands in an element, where the browser lets a page do that.
  if (navigator.clipboard) for (const button of all("[data-copy]")) button.hidden = false;
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-copy]");
    if (!button) return;
    navigator.clipboard.writeText(find(`#${button.dataset.copy}`).textContent).then(() => { button.textContent = "Copied"; });
  });

  // ---- Once.
  const again = find("[data-reload-s]");
  if (again) setTimeout(() => location.reload(), Number(again.dataset.reloadS) * 1000);
  const keys = find("#help-button");
  if (keys) {
    keys.hidden = false;
    find("#keys-on").checked = areKeysOn();
    keys.addEventListener("click", help);
  }
  countSelected();
  drawCharts();
})();
