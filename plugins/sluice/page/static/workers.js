// The workers that stay, below the list of pipelines.
import { h } from "./dom.js";
import * as f from "./format.js";
import { pipelineLink } from "./list.js";
import { workerBadge } from "./words.js";

const COLUMNS = ["State", "Worker", "Holds", "Memory", "Age", "Idle since"];
const SHOWN = 20; // ranges of one worker

/** All groups; nothing where no pipeline names one. */
export function workers(groups, now) {
  if (!groups.length) return null;
  const all = groups.flatMap((g) => g.workers);
  const counts = ["writing", "idle", "lost", "unknown"].map((state) => [state, all.filter((w) => w.state === state).length]).filter(([, n]) => n);
  return h(
    "section",
    { "aria-labelledby": "workers", "data-key": "workers" },
    h("div", { class: "heading" }, h("h2", { id: "workers" }, "Workers"), h("p", { class: "counts" }, counts.map(([state, n]) => h("span", {}, `${f.number(n)} ${state}`)))),
    h(
      "table",
      { class: "rows workers" },
      h("thead", {}, h("tr", {}, COLUMNS.map((name) => h("th", { scope: "col", class: name === "Memory" || name === "Age" ? "right" : null }, name)))),
      h("tbody", {}, groups.flatMap((g) => (g.workers.length ? g.workers.map((w) => row(g, w, now)) : [none(g)]))),
    ),
  );
}

function row(g, w, now) {
  const where = [`group ${g.group}`, w.host && `on ${w.host.replace(/^\//, "")}`].filter(Boolean).join(", ");
  return h(
    "tr",
    { "data-key": `worker ${g.group} ${w.name}` },
    h("td", { "data-label": "State" }, workerBadge(w.state)),
    h("td", { "data-label": "Worker", class: "wide" }, h("span", { class: "name cut" }, w.name), h("div", { class: "sub cut", title: g.pipelines.join(", ") }, `${where}, for ${f.count(g.pipelines.length, "pipeline")}`)),
    h("td", { "data-label": "Holds" }, w.holds.length ? w.holds.slice(0, SHOWN).map((held) => hold(held, now)) : "–", w.holds.length > SHOWN && h("div", { class: "sub" }, `and ${f.number(w.holds.length - SHOWN)} more`)),
    h("td", { "data-label": "Memory", class: "right", title: "When it last claimed a range" }, w.memory === null ? "–" : f.bytes(w.memory * 1024 * 1024)),
    h("td", { "data-label": "Age", class: "right" }, w.began ? h("time", { datetime: w.began, title: `Since ${new Date(w.began).toLocaleString()}` }, f.duration(Math.round(f.secondsSince(w.began, now))).replace(".0 ", " ")) : "–"),
    h("td", { "data-label": "Idle since" }, w.state === "idle" ? f.age(w.last_heard, now) : "–"),
  );
}

function hold(held, now) {
  const link = `${pipelineLink(held.pipeline)}/transaction/${held.instant}`;
  return h("div", {}, h("a", { href: link }, `${held.pipeline}, range ${held.range}`), h("span", { class: "sub" }, " ", f.age(held.since, now)));
}

function none(g) {
  const state = g.known ? "none" : "unknown";
  return h(
    "tr",
    { "data-key": `group ${g.group}` },
    h("td", { "data-label": "State" }, workerBadge(state)),
    h("td", { "data-label": "Worker", class: "wide" }, h("span", { class: "sub" }, `group ${g.group}, for ${f.count(g.pipelines.length, "pipeline")}`)),
    ["Holds", "Memory", "Age", "Idle since"].map((name) => h("td", { "data-label": name, class: name === "Memory" || name === "Age" ? "right" : null }, "–")),
  );
}
