// Which view is shown, and when it is read again.
import { mirrorAddress, openInAirflow, RequestError } from "./api.js";
import { h, morph, morphChildren } from "./dom.js";
import * as f from "./format.js";
import { listView, searchFor } from "./list.js";
import { pipelineView } from "./pipeline.js";
import { dagView, runView } from "./run.js";
import { showMessages, transactionView } from "./transaction.js";

const EVERY = 5000; // milliseconds between two looks
const ROUTES = [
  [/^\/?$/, () => [listView, {}]],
  [/^\/pipeline\/([^/]+)$/, ([key]) => [pipelineView, { key }]],
  [/^\/pipeline\/([^/]+)\/transaction\/(\d+)$/, ([key, instant]) => [transactionView, { key, instant }]],
  [/^\/dag\/([^/]+)$/, ([dag]) => [dagView, { dag }]],
  [/^\/dag\/([^/]+)\/run\/([^/]+)$/, ([dag, run]) => [runView, { dag, run }]],
];

const main = document.getElementById("main");
const top_ = document.getElementById("top");
const banners = document.getElementById("banners");
const tip = document.getElementById("tip");
const state = { route: null, shown: null, readAt: null, failure: null, going: null, paused: false };

function route() {
  const [path, search] = location.hash.replace(/^#/, "").split("?");
  for (const [pattern, make] of ROUTES) {
    const match = pattern.exec(path);
    if (!match) continue;
    const [view, parameters] = make(match.slice(1).map(decodeURIComponent));
    return { view, parameters: { ...parameters, query: new URLSearchParams(search) } };
  }
  return null;
}

async function refresh() {
  state.going?.abort();
  const going = (state.going = new AbortController());
  const asked = state.route;
  if (!asked) return;
  try {
    const shown = await asked.view(asked.parameters, going.signal);
    if (going.signal.aborted) return;
    Object.assign(state, { shown, readAt: Date.now(), failure: null });
  } catch (error) {
    if (error.name === "AbortError") return;
    state.failure = error;
    if (!(error instanceof RequestError)) console.error(error);
    if (error.status === 403 || error.status === 404) state.shown = null; // what was seen may not be any more
  } finally {
    if (state.going === going) state.going = null;
  }
  draw();
}

function draw() {
  const now = Date.now();
  document.title = state.shown ? `${state.shown.title} – Sluice` : "Sluice";
  drawTop(now);
  drawBanners(now);
  main.setAttribute("aria-busy", String(!state.shown && !state.failure));
  const fresh = h("main", {}, state.shown ? state.shown.content(now) : state.failure ? null : loading());
  morphChildren(main, fresh);
}

function loading() {
  return h("section", { class: "panel empty" }, h("p", {}, "Reading …"));
}

function drawTop(now) {
  const trail = state.route?.view === listView ? [] : [["Pipelines", "#/"], ...(state.shown?.trail ?? [])];
  const seconds = state.readAt ? Math.floor((now - state.readAt) / 1000) : null;
  const fresh = h(
    "header",
    {},
    h("nav", { "aria-label": "Where you are" }, h("a", { class: "brand", href: "#/" }, "Sluice"), trail.map(([name, href]) => h("a", { href }, name)), trail.length > 0 && state.shown && h("span", { "aria-current": "page", class: "cut" }, state.shown.title)),
    h(
      "div",
      { class: "freshness" },
      h("span", { class: "sub" }, seconds === null ? "" : state.paused ? `read ${f.duration(seconds).replace(".0", "")} ago` : seconds < 8 ? "up to date" : `read ${f.duration(seconds)} ago`),
      h("button", { type: "button", "data-act": "pause", "aria-pressed": String(state.paused), title: "Pause or resume the refresh every five seconds" }, state.paused ? "Resume" : "Pause"),
    ),
  );
  morph(top_, Object.assign(fresh, { id: "top" }));
}

function drawBanners(now) {
  const found = [...(state.shown?.data.banners ?? [])];
  if (state.failure) found.unshift({ level: "error", text: state.failure.message, since: state.shown && state.readAt ? new Date(state.readAt).toISOString() : null });
  const signs = { error: "✕", warning: "!", info: "i" };
  const fresh = h(
    "div",
    {},
    found.map((b) =>
      h(
        "div",
        { class: `banner ${b.level}` },
        h("span", { class: "sign", "aria-hidden": "true" }, signs[b.level] ?? "i"),
        h("span", {}, b.text, b.since ? [" What is shown was read ", f.age(b.since, now), "."] : ""),
        state.failure?.status === 401 && h("a", { href: location.pathname }, "Log in"),
      ),
    ),
  );
  morphChildren(banners, fresh);
}

function go() {
  state.route = route();
  searchFor("");
  Object.assign(state, { shown: null, failure: state.route ? null : new RequestError(404, "There is no such page."), readAt: null });
  tip.hidden = true;
  draw();
  mirrorAddress();
  scrollTo(0, 0);
  refresh();
}

// One listener for each kind of event: what is drawn is drawn anew all the time.
document.addEventListener("click", async (event) => {
  const target = event.target.closest("a, button, [data-href], [data-i]");
  if (!target) return;
  if (target.matches("a[data-airflow]")) {
    if (!event.ctrlKey && !event.metaKey && openInAirflow(target.getAttribute("href"))) event.preventDefault();
  } else if (target.dataset.act === "pause") {
    state.paused = !state.paused;
    draw();
    if (!state.paused) refresh();
  } else if (target.dataset.messages) {
    const reading = showMessages(target.dataset.pipeline, target.dataset.messages);
    draw();
    await reading;
    draw();
  } else if (target.dataset.i !== undefined) {
    const charts = target.closest("[data-links]");
    const instant = charts?.dataset.instants.split(" ")[target.dataset.i];
    if (instant) location.hash = `${charts.dataset.links}/transaction/${instant}`;
  } else if (target.dataset.href && !getSelection().toString()) {
    location.hash = target.dataset.href;
  }
});

document.addEventListener("input", (event) => {
  if (event.target.dataset.search === undefined) return;
  searchFor(event.target.value);
  draw();
});

document.addEventListener("pointerover", (event) => {
  const text = event.target.closest?.("[data-tip]")?.dataset.tip;
  tip.hidden = !text;
  if (!text) return;
  if (tip.textContent !== text) tip.textContent = text;
  place(event);
});
document.addEventListener("pointermove", (event) => tip.hidden || place(event));

function place(event) {
  const { offsetWidth: width, offsetHeight: height } = tip;
  tip.style.left = `${Math.max(Math.min(event.clientX + 12, innerWidth - width - 8), 4)}px`;
  tip.style.top = `${event.clientY + height + 20 > innerHeight ? event.clientY - height - 10 : event.clientY + 14}px`;
}

addEventListener("hashchange", go);
document.addEventListener("visibilitychange", () => document.hidden || state.paused || refresh());
setInterval(() => {
  if (document.hidden) return;
  if (state.paused || state.failure?.status === 401) draw();
  else if (!state.going) refresh();
}, EVERY);
go();
