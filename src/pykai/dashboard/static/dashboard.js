// What pages cannot do by themselves: follow the cluster, load explanations, draw the map of a large cluster.
"use strict";

const $ = (selector, from = document) => from.querySelector(selector);
const all = (selector, from = document) => [...from.querySelectorAll(selector)];
const announce = (text) => { $("#announce").textContent = text; };

// ------------------------------------------------------------------------------------------------ replacing what changed
// Make `old` like `fresh` and keep the nodes that stay: focus, open details and loaded answers survive.
function morph(old, fresh) {
  if (old.isEqualNode(fresh)) return;
  if (old.nodeType !== fresh.nodeType || old.nodeName !== fresh.nodeName) { old.replaceWith(fresh); return; }
  if (old.nodeType !== Node.ELEMENT_NODE) { if (old.data !== fresh.data) old.data = fresh.data; return; }
  if (old.classList.contains("answer") || old.tagName === "CANVAS") return;
  for (const { name } of [...old.attributes]) {
    if (!fresh.hasAttribute(name) && !(old.tagName === "DETAILS" && name === "open")) old.removeAttribute(name);
  }
  for (const { name, value } of fresh.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  if (old === document.activeElement && ["INPUT", "TEXTAREA", "SELECT"].includes(old.tagName)) return;
  const byId = new Map([...old.children].filter((child) => child.id).map((child) => [child.id, child]));
  let next = old.firstChild;
  for (const child of [...fresh.childNodes]) {
    const same = child.id && byId.get(child.id);
    if (same) {
      if (same !== next) old.insertBefore(same, next); else next = next.nextSibling;
      morph(same, child);
    } else if (next && !next.id && next.nodeName === child.nodeName) {
      const following = next.nextSibling;
      morph(next, child);
      next = following;
    } else {
      old.insertBefore(child, next);
    }
  }
  while (next) { const gone = next; next = next.nextSibling; gone.remove(); }
}

let loading = null;
async function show(url, { push = false } = {}) {
  loading?.abort();
  const mine = (loading = new AbortController());
  let text;
  try {
    const answer = await fetch(url, { headers: { "X-Fragment": "1" }, signal: mine.signal });
    if (answer.status === 401) { location.assign("/sign-in"); return; }
    text = await answer.text();
  } catch (error) {
    if (error.name !== "AbortError") connection("lost", "Not connected");
    return;
  }
  const fresh = new DOMParser().parseFromString(text, "text/html").querySelector("main");
  if (!fresh) return;
  morph($("#main"), document.importNode(fresh, true));
  if (push) history.replaceState(null, "", url);
  const time = $("#state-time");
  if (time && fresh.dataset.time) time.textContent = fresh.dataset.time + " UTC";
  dress();
}

// ------------------------------------------------------------------------------------------------------- live updates
function connection(kind, text) {
  const badge = $("#connection");
  badge.classList.toggle("lost", kind === "lost");
  badge.classList.toggle("live", kind === "live");
  if ($(".state", badge).textContent !== text) $(".state", badge).textContent = text;
}

let hiddenChange = false;
function follow() {
  if ($("#connection").dataset.kind !== "live") return;
  const events = new EventSource("/events?revision=" + $("#main").dataset.revision);
  events.addEventListener("open", () => connection("live", "Live"));
  events.addEventListener("error", () => connection("lost", "Reconnecting"));
  events.addEventListener("moment", () => {
    if (document.hidden) { hiddenChange = true; return; }
    refresh();
  });
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden && hiddenChange) { hiddenChange = false; refresh(); }
  });
}

let due = 0;
function refresh() {
  if ($("form.what-if")) return;
  clearTimeout(due);
  due = setTimeout(() => { show(location.href); drawMap(); }, 50);
}

// ------------------------------------------------------------------------------------------------------- explanations
async function answerInto(place, url) {
  if (place.dataset.loaded === url) return;
  place.dataset.loaded = url;
  place.innerHTML = '<p class="loading">Looking for what would start it…</p>';
  try {
    const answer = await fetch(url, { headers: { "X-Fragment": "1" } });
    const found = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector("main");
    place.replaceChildren(...(found ? [...found.children].map((node) => document.importNode(node, true)) : []));
  } catch {
    place.dataset.loaded = "";
    place.textContent = "The explanation could not be loaded.";
  }
}

document.addEventListener("toggle", (event) => {
  const details = event.target;
  if (details.open && details.dataset?.explanation) answerInto($(".answer", details), details.dataset.explanation);
}, true);

// -------------------------------------------------------------------------------------------------------------- charts
function dressChart(plot) {
  if (plot.dataset.dressed) return;
  plot.dataset.dressed = "1";
  const svg = $("svg", plot);
  const cursor = Object.assign(document.createElement("div"), { className: "cursor", hidden: true });
  const tip = Object.assign(document.createElement("div"), { className: "tip", hidden: true });
  plot.append(cursor, tip);
  svg.addEventListener("pointermove", (event) => {
    const points = JSON.parse($(".points", plot).textContent);
    const box = svg.getBoundingClientRect(), frame = plot.getBoundingClientRect();
    const part = (event.clientX - box.left) / box.width, times = points.at;
    const when = times[0] + part * (times.at(-1) - times[0]);
    let nearest = times.findIndex((time) => time > when) - 1;
    if (nearest < 0) nearest = part <= 0 ? 0 : times.length - 1;
    const left = event.clientX - frame.left;
    cursor.style.left = left + "px";
    cursor.style.height = box.height + "px";
    tip.replaceChildren(line(new Date(times[nearest] * 1000).toISOString().slice(11, 19) + " UTC", "", "when"));
    for (const [name, values] of Object.entries(points)) {
      if (name !== "at" && (values[nearest] || name === "Allocated")) {
        tip.append(line(name, values[nearest] < 0 ? "∞" : String(Math.round(values[nearest] * 100) / 100)));
      }
    }
    cursor.hidden = tip.hidden = false;
    tip.style.left = Math.min(left + 14, frame.width - tip.offsetWidth - 4) + "px";
  });
  svg.addEventListener("pointerleave", () => { cursor.hidden = tip.hidden = true; });
}

function line(name, value, style = "") {
  const made = Object.assign(document.createElement("div"), { className: style });
  made.append(Object.assign(document.createElement("span"), { textContent: name }),
    Object.assign(document.createElement("strong"), { textContent: value }));
  return made;
}

// -------------------------------------------------------------------------------------------------- map of large clusters
const map = { data: null, columns: 1, cell: 5, gap: 3, selected: -1 };

async function drawMap() {
  const canvas = $("#map");
  if (!canvas) return;
  const answer = await fetch(canvas.dataset.source);
  if (!answer.ok) return;
  map.data = await answer.json();
  map.gpus = Math.max(1, ...map.data.cells.map((row) => row.length));
  paint();
}

function paint() {
  const canvas = $("#map");
  if (!canvas || !map.data) return;
  const style = getComputedStyle(document.documentElement), colour = (name) => style.getPropertyValue(name).trim();
  const palette = [...Array(12).keys()].map((at) => colour("--q" + at)).concat(colour("--qx"));
  const free = colour("--free"), bad = colour("--bad"), focus = colour("--focus");
  const { names, cells, marks, down } = map.data, lost = new Set(down);
  const width = canvas.parentElement.clientWidth, rows = Math.ceil(Math.sqrt(map.gpus));
  const across = Math.ceil(map.gpus / rows);
  const room = (cell) => Math.floor(width / (across * cell + map.gap));
  map.cell = [9, 8, 7, 6, 5, 4].find((cell) => names.length / room(cell) * (rows * cell + map.gap) < 620) ?? 4;
  map.columns = room(map.cell);
  map.across = across * map.cell + map.gap;
  map.down = rows * map.cell + map.gap;
  const height = Math.ceil(names.length / map.columns) * map.down, scale = window.devicePixelRatio || 1;
  canvas.width = width * scale;
  canvas.height = height * scale;
  canvas.style.height = height + "px";
  const pen = canvas.getContext("2d");
  pen.scale(scale, scale);
  const size = map.cell - 1;
  cells.forEach((row, node) => {
    const x = (node % map.columns) * map.across, y = Math.floor(node / map.columns) * map.down;
    row.forEach((queue, gpu) => {
      const left = x + (gpu % across) * map.cell, top = y + Math.floor(gpu / across) * map.cell;
      pen.fillStyle = queue < 0 ? free : palette[queue];
      const mark = marks[node][gpu];
      if (mark === "l") pen.globalAlpha = 0.45;
      pen.fillRect(left, top, size, size);
      pen.globalAlpha = 1;
      if (mark === "s") { pen.fillStyle = free; pen.fillRect(left, top + size / 2, size, size / 2); }
    });
    if (lost.has(node)) { pen.strokeStyle = bad; pen.strokeRect(x - .5, y - .5, map.across - map.gap + .5, map.down - map.gap + .5); }
    if (node === map.selected) {
      pen.strokeStyle = focus; pen.lineWidth = 2;
      pen.strokeRect(x - 1.5, y - 1.5, map.across - map.gap + 2, map.down - map.gap + 2);
      pen.lineWidth = 1;
    }
  });
}

function select(node) {
  if (!map.data || node < 0 || node >= map.data.names.length || node === map.selected) return;
  map.selected = node;
  const row = map.data.cells[node], used = row.filter((queue) => queue >= 0).length;
  $("#map-text").textContent = `${map.data.names[node]}: ${used} of ${row.length} GPUs in use`;
  paint();
}

function dressMap() {
  const canvas = $("#map");
  if (!canvas || canvas.dataset.dressed) return;
  canvas.dataset.dressed = "1";
  const at = (event) => {
    const box = canvas.getBoundingClientRect();
    const column = Math.min(Math.floor((event.clientX - box.left) / map.across), map.columns - 1);
    return Math.floor((event.clientY - box.top) / map.down) * map.columns + column;
  };
  const open = (node) => {
    if (map.data?.names[node]) location.assign("/devices/" + encodeURIComponent(map.data.names[node]) + location.search);
  };
  canvas.addEventListener("pointermove", (event) => select(at(event)));
  canvas.addEventListener("click", (event) => open(at(event)));
  canvas.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: map.columns, ArrowUp: -map.columns }[event.key];
    if (step) { event.preventDefault(); select(map.selected < 0 ? 0 : map.selected + step); }
    if (event.key === "Enter") open(map.selected);
  });
  new ResizeObserver(paint).observe(canvas.parentElement);
  drawMap();
}

// ------------------------------------------------------------------------------------------------ moments of a simulation
function slide() {
  const slider = $("#instant");
  if (!slider) return;
  const values = JSON.parse($("#instant-values").textContent), play = $("#play");
  const given = Number(new URL(location.href).searchParams.get("at"));
  if (given) slider.value = Math.max(0, values.findLastIndex((value) => value <= given + 0.01));
  const label = () => {
    const seconds = Math.round(values[slider.value] - values[0]);
    const text = new Date(values[slider.value] * 1000).toISOString().slice(0, 19).replace("T", " ");
    $("#instant-text").textContent = `${text} (+${seconds} s)`;
    slider.setAttribute("aria-valuetext", `${seconds} seconds after the start`);
  };
  const go = () => {
    label();
    const url = new URL(location.href), at = values[slider.value].toFixed(3);
    url.searchParams.set("at", at);
    for (const link of all(".top nav a")) link.href = new URL(link.href).pathname + "?at=" + at;
    const canvas = $("#map");
    if (canvas) { canvas.dataset.source = "/devices.json?at=" + at; drawMap(); }
    return show(url, { push: true });
  };
  slider.addEventListener("input", go);
  let timer = 0;
  play.addEventListener("click", () => {
    const playing = play.classList.toggle("playing");
    play.setAttribute("aria-label", playing ? "Pause" : "Play");
    clearInterval(timer);
    if (!playing) return;
    if (slider.value === slider.max) slider.value = 0;
    timer = setInterval(() => {
      if (slider.value === slider.max) { play.click(); return; }
      slider.value = Number(slider.value) + Math.max(1, Math.round(values.length / 120));
      go();
    }, 700);
  });
  label();
}

// --------------------------------------------------------------------------------------------------------------- start
function dress() {
  all("[data-chart]").forEach(dressChart);
  all("[data-load]").forEach((place) => answerInto(place, place.dataset.load));
  dressMap();
}

$("#theme").addEventListener("click", () => {
  const dark = document.documentElement.dataset.theme
    ? document.documentElement.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = dark ? "light" : "dark";
  try { localStorage.setItem("kai-theme", dark ? "light" : "dark"); } catch { /* storage may be forbidden */ }
  announce(dark ? "Light colours" : "Dark colours");
  paint();
});
document.addEventListener("change", (event) => {
  if (event.target.matches(".filter select")) event.target.form.requestSubmit();
});
document.addEventListener("submit", (event) => {
  const busy = event.target.matches(".what-if") && $("button.primary", event.target);
  if (busy) { busy.disabled = true; busy.textContent = "Deciding…"; }
});
dress();
slide();
follow();
