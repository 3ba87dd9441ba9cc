// The list of pipelines.
import { load } from "./api.js";
import { spark } from "./charts.js";
import { h } from "./dom.js";
import * as f from "./format.js";
import { pipelineBadge } from "./words.js";
import { workers } from "./workers.js";

export const pipelineLink = (key) => `#/pipeline/${encodeURIComponent(key)}`;

const MANY = 8; // pipelines from which on there is a field to search them
const search = { text: "" };

/** Show only the pipelines in whose name, topics or table this text occurs. */
export function searchFor(text) {
  search.text = text.trim().toLowerCase();
}

const matches = (p) => !search.text || [p.key, p.table ?? "", ...p.topics].some((text) => text.toLowerCase().includes(search.text));

const ORDER = ["failing", "late", "running", "unknown", "ok", "never ran", "paused"];

export async function listView(_, signal) {
  const [data, { groups, banners }] = await Promise.all([load("pipelines", {}, signal), load("workers", {}, signal)]);
  data.banners = [...data.banners, ...banners];
  const rows = [...data.pipelines].sort((a, b) => ORDER.indexOf(a.state) - ORDER.indexOf(b.state) || a.key.localeCompare(b.key));
  return { data, title: "Pipelines", trail: [], content: (now) => (rows.length ? [table(rows, now), workers(groups, now)] : empty()) };
}

function empty() {
  return h(
    "section",
    { class: "panel empty" },
    h("h1", {}, "No pipelines yet"),
    h("p", {}, "A pipeline file in the folder ", h("code", {}, "dags/pipelines"), " is a pipeline. It isn't listed here if you may not read its DAG, or if the API server doesn't know its control topic."),
  );
}

function table(all, now) {
  const rows = all.filter(matches);
  const counts = ORDER.map((state) => [state, rows.filter((p) => p.state === state).length]).filter(([, n]) => n);
  return h(
    "section",
    {},
    h("div", { class: "heading" }, h("h1", {}, "Pipelines"), h("p", { class: "counts" }, counts.map(([state, n]) => h("span", {}, `${f.number(n)} ${state}`))), all.length > MANY && h("input", { type: "search", placeholder: "Name, topic or table", "aria-label": "Search the pipelines", "data-search": true })),
    h(
      "table",
      { class: "rows" },
      h("thead", {}, h("tr", {}, ["State", "Pipeline", "Schedule", "Latest transactions", "Last commit", "Complete through", "Lag"].map((name) => h("th", { scope: "col", class: name === "Lag" ? "right" : null }, name)))),
      h("tbody", {}, rows.map((p) => row(p, now))),
    ),
  );
}

/** How far the table is behind in time: nothing waits, or as old as it is complete. */
export function lagTime(p, now) {
  if (p.lag === null) return null;
  return p.lag === 0 ? "caught up" : p.valid_through ? `${f.duration(f.secondsSince(p.valid_through, now))} behind` : "not loaded yet";
}

function row(p, now) {
  return h(
    "tr",
    { "data-key": p.key, "data-href": pipelineLink(p.key) },
    h("td", { "data-label": "State" }, pipelineBadge(p.state, p.why), p.failures > 1 && h("div", { class: "sub bad" }, `${f.number(p.failures)} in a row`)),
    h(
      "td",
      { "data-label": "Pipeline", class: "wide" },
      h("a", { class: "name", href: pipelineLink(p.key) }, p.key),
      h("div", { class: "sub cut", title: `${p.topics.join(", ")} to ${p.table ?? ""}` }, p.table ? `${p.topics.join(", ") || "–"} → ${p.table}` : "has started no transaction"),
    ),
    h("td", { "data-label": "Schedule" }, p.schedule ?? "by hand"),
    h("td", { "data-label": "Latest transactions" }, spark(p.recent)),
    h("td", { "data-label": "Last commit" }, f.age(p.last_commit, now)),
    h("td", { "data-label": "Complete through" }, f.when(p.valid_through)),
    h("td", { "data-label": "Lag", class: "right" }, h("span", { class: "figure" }, f.distance(p.lag, p.positions)), h("div", { class: "sub" }, lagTime(p, now))),
  );
}
