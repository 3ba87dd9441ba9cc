// One pipeline: its state, its transactions in time, its partitions, and what others did to its table.
import { dagUrl, load, runUrl } from "./api.js";
import { columns, gantt, lines, outcomes, scaleOf, took } from "./charts.js";
import { h } from "./dom.js";
import * as f from "./format.js";
import { lagTime, pipelineLink } from "./list.js";
import { kindBadge, marks, pipelineBadge, stateBadge } from "./words.js";

const WINDOWS = [30, 60, 120, 240];
const PARTITIONS = 100;

export const transactionLink = (key, instant) => `${pipelineLink(key)}/transaction/${instant}`;

export async function pipelineView({ key, query }, signal) {
  const usual = innerWidth < 700 ? 30 : 60;
  const limit = WINDOWS.includes(Number(query.get("n"))) ? Number(query.get("n")) : usual;
  const before = query.get("before");
  const data = await load("pipeline", { key, limit, before }, signal);
  return { data, title: key, trail: [], content: (now) => view(data, limit, before, now) };
}

function view(p, limit, before, now) {
  return h(
    "article",
    {},
    heading(p),
    stats(p, now),
    p.transactions.length ? history(p, limit, before, now) : nothing(p),
    partitions(p, now),
    others(p),
  );
}

function heading(p) {
  return h(
    "div",
    { class: "heading" },
    h("h1", {}, p.key, " ", pipelineBadge(p.state, p.why)),
    p.dag_id && h("a", { class: "button", href: dagUrl(p.dag_id), "data-airflow": true, title: "Start, pause or clear runs there" }, "Open the DAG"),
    h("p", { class: "sub" }, p.description ? `${p.description} ` : "", h("span", { class: "path" }, `${p.topics.join(", ") || "–"} → ${p.table ?? "no table yet"}`), p.operation ? ` · ${p.operation}` : ""),
    p.why && p.state !== "ok" && h("p", { class: "why" }, p.why, p.state === "failing" && p.last_run?.note ? h("span", { class: "said" }, ` ${p.last_run.note}`) : null),
  );
}

function stats(p, now) {
  const items = [
    ["Lag", f.distance(p.lag, p.positions), lagTime(p, now), ofKafka(p) ? "Offsets between the logs' ends now and what is committed" : "A database isn't queried for its waiting rows; each transaction says what it has left"],
    ["Last commit", f.age(p.last_commit, now), p.last_instant && h("a", { href: transactionLink(p.key, p.last_instant) }, p.last_instant), null],
    ["Complete through", f.when(p.valid_through), "by the last commit", "The time up to which the table holds all records, by the last ACK-COMMIT"],
    ["Schedule", p.schedule ?? "by hand", p.next_run ? h("span", {}, "next ", f.when(p.next_run)) : p.state === "paused" ? "paused" : null, null],
    ["Latest run", p.last_run ? h("a", { href: runUrl(p.dag_id, p.last_run.run_id), "data-airflow": true }, p.last_run.state) : "–", p.last_run && f.when(p.last_run.started), null],
    ["Failed runs in a row", f.number(p.failures), `${f.number(p.total)} transactions known`, null],
  ];
  return h("dl", { class: "stats" }, items.map(([name, value, sub, title]) => h("div", { title }, h("dt", {}, name), h("dd", {}, h("span", { class: "figure" }, value), h("span", { class: "sub" }, sub ?? "")))));
}

function nothing(p) {
  return h("section", { class: "panel empty" }, h("p", {}, p.table ? "The control topic has no transaction of this table." : "No pipeline file in the API server's DAGs folder names this DAG, and it has started no transaction."));
}

function history(p, limit, before, now) {
  const oldestFirst = [...p.transactions].reverse();
  const tips = oldestFirst.map((t) => tip(t, p.positions, now));
  const points = (value) => oldestFirst.map((t, i) => ({ value: value(t), state: t.state, instant: t.instant, tip: tips[i] }));
  const sum = (name) => p.transactions.reduce((total, t) => total + (t[name] ?? 0), 0);
  const charts = [
    columns({ title: "Rows written", note: `${f.number(sum("records_written"))} in all`, points: points((t) => t.records_written), format: f.number }),
    columns({ title: "Bytes read", note: `${f.bytes(sum("bytes_read"))} in all`, points: points((t) => t.bytes_read), format: f.bytes }),
    columns({ title: "Time taken", points: points((t) => took(t, now)), format: f.duration }),
  ];
  if (p.lag_lines.length) {
    charts.push(lines({ title: ofKafka(p) ? "Lag left by partition" : "Lag left by table", lines: p.lag_lines, format: (lag) => f.distance(lag, p.positions), tips: tips.map((x) => x.split("\n")[0]), states: oldestFirst.map((t) => t.state) }));
  } else {
    charts.push(columns({ title: "Offsets planned", points: points((t) => t.offsets_planned), format: (offsets) => f.distance(offsets, p.positions) }));
  }
  return h(
    "section",
    { "aria-labelledby": "transactions" },
    h("div", { class: "heading" }, h("h2", { id: "transactions" }, "Transactions"), pager(p, limit, before)),
    p.hidden > 0 && h("p", { class: "sub" }, `${f.number(p.hidden)} transactions of DAGs that you may not read are left out.`),
    outcomes(points(() => 0), (point) => transactionLink(p.key, point.instant)),
    h("div", { class: "charts", "data-links": pipelineLink(p.key), "data-instants": oldestFirst.map((t) => t.instant).join(" ") }, charts),
    table(p, now),
    legend(),
  );
}

function tip(t, positions, now) {
  const kind = t.kind === "continue" ? "" : ` (${t.kind})`;
  const lines = [`${t.instant} ${t.state}${kind}`, `${f.number(t.records_written)} rows written, ${f.bytes(t.bytes_read)} read`, `took ${f.duration(took(t, now))}`];
  if (t.lag_left !== null) lines.push(`lag left ${f.distance(t.lag_left, positions)}`);
  return lines.join("\n");
}

function pager(p, limit, before) {
  const link = (n, instant) => `${pipelineLink(p.key)}?n=${n}${instant ? `&before=${instant}` : ""}`;
  const last = p.first_shown + p.transactions.length;
  return h(
    "nav",
    { class: "pager", "aria-label": "Window of transactions" },
    h("span", { class: "sub" }, `${f.number(p.first_shown + 1)}–${f.number(last)} of ${f.number(p.total)}, newest first`),
    h("span", { class: "group" }, WINDOWS.map((n) => h("a", { href: link(n, before), "aria-current": n === limit ? "true" : null, title: `Show ${n} at a time` }, String(n)))),
    h(
      "span",
      { class: "group" },
      p.newer ? h("a", { href: link(limit, null) }, "Newest") : h("span", { class: "off" }, "Newest"),
      p.older ? h("a", { href: link(limit, p.transactions.at(-1).instant) }, "Older") : h("span", { class: "off" }, "Older"),
    ),
  );
}

/** Transactions and the runs that opened none, newest first; runs with nothing to read in a row are one line. */
function merged(p) {
  const rows = [...p.transactions, ...p.runs_without_transaction].sort((a, b) => Date.parse(b.started) - Date.parse(a.started));
  const found = [];
  for (const row of rows) {
    const last = found.at(-1);
    if (!row.instant && row.state === "empty" && last?.empties) last.empties.push(row);
    else found.push(!row.instant && row.state === "empty" ? { empties: [row] } : row);
  }
  return found;
}

function table(p, now) {
  const scale = scaleOf(p.transactions, now);
  const names = ["State", "Instant", "Started", `Took (drawn to ${f.duration(scale)})`, "Rows", "Bytes", "Lag left", "Run"];
  const right = new Set(["Rows", "Bytes", "Lag left"]);
  return h(
    "table",
    { class: "rows transactions" },
    h("thead", {}, h("tr", {}, names.map((name) => h("th", { scope: "col", class: right.has(name) ? "right" : null }, name)))),
    h("tbody", {}, merged(p).map((row) => (row.empties ? emptyRow(p, row.empties) : row.instant ? transactionRow(p, row, scale, now) : runRow(p, row)))),
  );
}

function transactionRow(p, t, scale, now) {
  const attempts = t.ranges.flat();
  const failed = attempts.filter((a) => a.failed).length;
  const away = t.records_quarantined + t.records_filtered + t.records_skipped;
  return h(
    "tr",
    { "data-key": t.instant, "data-href": transactionLink(p.key, t.instant) },
    h("td", { "data-label": "State" }, stateBadge(t.state), " ", kindBadge(t.kind, t.service), " ", marks(t)),
    h("td", { "data-label": "Instant" }, h("a", { class: "mono", href: transactionLink(p.key, t.instant) }, t.instant)),
    h("td", { "data-label": "Started" }, f.when(t.started)),
    h(
      "td",
      { "data-label": "Took", class: "wide" },
      h("div", { class: "took" }, gantt(t, scale, now), h("span", {}, f.duration(took(t, now)))),
      (failed > 0 || t.abort_reason) && h("div", { class: "sub cut", title: t.abort_reason }, failed > 0 ? `${f.number(failed)} of ${f.count(attempts.length, "attempt")} failed. ` : "", t.abort_reason ?? ""),
    ),
    h("td", { "data-label": "Rows", class: "right" }, f.number(t.records_written), away > 0 && h("div", { class: "sub warn" }, `${f.number(away)} set aside`)),
    h("td", { "data-label": "Bytes", class: "right" }, f.bytes(t.bytes_read)),
    h("td", { "data-label": "Lag left", class: "right" }, f.number(t.lag_left)),
    h("td", { "data-label": "Run", class: "run" }, t.dag_id === "sluice" ? h("span", { class: "sub cut", title: t.run_id }, "by hand") : h("a", { class: "cut", href: runUrl(t.dag_id, t.run_id), "data-airflow": true, title: t.run_id }, t.run_id)),
  );
}

function runRow(p, run) {
  return h(
    "tr",
    { "data-key": run.run_id, class: "quiet" },
    h("td", { "data-label": "State" }, stateBadge(run.state)),
    h("td", { "data-label": "Instant" }, "–"),
    h("td", { "data-label": "Started" }, f.when(run.started)),
    h("td", { "data-label": "Took", class: "wide", colspan: 4 }, h("div", { class: "sub cut", title: run.note }, run.note ?? (run.state === "running" ? "has not opened a transaction yet" : "opened no transaction"))),
    h("td", { "data-label": "Run", class: "run" }, h("a", { class: "cut", href: runUrl(p.dag_id, run.run_id), "data-airflow": true, title: run.run_id }, run.run_id)),
  );
}

function emptyRow(p, runs) {
  const word = runs.length === 1 ? "1 empty window: nothing to read" : `${f.number(runs.length)} empty windows: nothing to read`;
  return h(
    "tr",
    { "data-key": `empty ${runs.at(-1).run_id}`, class: "quiet" },
    h("td", { "data-label": "State" }, stateBadge("empty")),
    h("td", { "data-label": "Instant" }, "–"),
    h("td", { "data-label": "Started" }, f.when(runs.at(-1).started)),
    h("td", { "data-label": "Took", class: "wide", colspan: 4 }, h("span", { class: "sub" }, word, runs.length > 1 ? ["; the last at ", f.when(runs[0].started)] : "")),
    h("td", { "data-label": "Run", class: "run" }, h("a", { class: "cut", href: runUrl(p.dag_id, runs[0].run_id), "data-airflow": true, title: runs[0].run_id }, runs[0].run_id)),
  );
}

export function legend() {
  const part = (shape, text) => h("span", {}, h("svg", { width: 18, height: 8, "aria-hidden": "true" }, shape), text);
  return h(
    "p",
    { class: "sub key" },
    part(h("line", { class: "start", x1: 0, x2: 18, y1: 4, y2: 4 }), "from START-COMMIT to the first write"),
    part(h("rect", { class: "attempt good", x: 1, y: 1.5, width: 16, height: 5, rx: 1 }), "write that counts"),
    part(h("rect", { class: "attempt spare", x: 1, y: 1.5, width: 16, height: 5, rx: 1 }), "write not needed"),
    part(h("rect", { class: "attempt bad", x: 1, y: 1.5, width: 16, height: 5, rx: 1 }), "write that failed"),
    part(h("rect", { class: "commit", x: 1, y: 0.5, width: 16, height: 7, rx: 1 }), "commit, END to ACK"),
  );
}

/** Whether what is read are topics, and not tables of a database. */
const ofKafka = (p) => p.positions === "offsets";

function partitions(p, now) {
  if (!p.partitions.length) return null;
  if (!ofKafka(p)) return readTables(p, now);
  const shown = p.partitions.slice(0, PARTITIONS);
  const names = ["Cluster", "Topic", "Partition", "Committed", "Log end", "Lag", "Latest record", "Committed by"];
  const right = new Set(["Partition", "Committed", "Log end", "Lag"]);
  return h(
    "section",
    { "aria-labelledby": "partitions" },
    h("div", { class: "heading" }, h("h2", { id: "partitions" }, "Offsets"), h("p", { class: "sub" }, `${f.count(p.partitions_total, "partition")}, largest lag first`)),
    h(
      "table",
      { class: "rows" },
      h("thead", {}, h("tr", {}, names.map((name) => h("th", { scope: "col", class: right.has(name) ? "right" : null }, name)))),
      h(
        "tbody",
        {},
        shown.map((row) =>
          h(
            "tr",
            { "data-key": `${row.cluster} ${row.topic} ${row.partition}` },
            h("td", { "data-label": "Cluster" }, row.cluster),
            h("td", { "data-label": "Topic" }, row.topic),
            h("td", { "data-label": "Partition", class: "right" }, String(row.partition)),
            h("td", { "data-label": "Committed", class: "right" }, f.number(row.committed)),
            h("td", { "data-label": "Log end", class: "right" }, f.number(row.log_end)),
            h("td", { "data-label": "Lag", class: "right figure" }, f.number(row.lag)),
            h("td", { "data-label": "Latest record" }, f.age(row.last_record, now)),
            h("td", { "data-label": "Committed by" }, row.instant ? h("a", { class: "mono", href: transactionLink(p.key, row.instant) }, row.instant) : "–"),
          ),
        ),
      ),
    ),
    p.partitions_total > shown.length && h("p", { class: "sub" }, `${f.number(p.partitions_total - shown.length)} more with less lag.`),
  );
}

/** The position in each table of a database. Only the database knows how many rows wait there. */
function readTables(p, now) {
  const shown = p.partitions.slice(0, PARTITIONS);
  const upTo = { times: "Read up to", numbers: "Read up to number", snapshots: "Snapshots read" }[p.positions];
  const right = new Set(["Split", upTo]);
  return h(
    "section",
    { "aria-labelledby": "partitions" },
    h("div", { class: "heading" }, h("h2", { id: "partitions" }, "Tables"), h("p", { class: "sub" }, f.count(p.partitions_total, "position"))),
    h(
      "table",
      { class: "rows" },
      h("thead", {}, h("tr", {}, ["Connection", "Table", "Split", upTo, "Latest row", "Committed by"].map((name) => h("th", { scope: "col", class: right.has(name) ? "right" : null }, name)))),
      h(
        "tbody",
        {},
        shown.map((row) =>
          h(
            "tr",
            { "data-key": `${row.cluster} ${row.topic} ${row.partition}` },
            h("td", { "data-label": "Connection" }, row.cluster),
            h("td", { "data-label": "Table" }, row.topic),
            h("td", { "data-label": "Split", class: "right" }, String(row.partition)),
            h("td", { "data-label": upTo, class: "right" }, f.position(row.committed, p.positions)),
            h("td", { "data-label": "Latest row" }, f.age(row.last_record, now)),
            h("td", { "data-label": "Committed by" }, row.instant ? h("a", { class: "mono", href: transactionLink(p.key, row.instant) }, row.instant) : "–"),
          ),
        ),
      ),
    ),
    p.partitions_total > shown.length && h("p", { class: "sub" }, `${f.number(p.partitions_total - shown.length)} more are in the read API.`),
  );
}

function others({ others: found }) {
  const services = Object.entries(found.services);
  if (!found.commits.length && !services.length) return null;
  return h(
    "section",
    { "aria-labelledby": "others" },
    h("div", { class: "heading" }, h("h2", { id: "others" }, "Others on the timeline"), h("p", { class: "sub" }, services.map(([action, n]) => `${f.number(n)} × ${action}`).join(", "))),
    found.commits.length > 0 &&
      h(
        "table",
        { class: "rows" },
        h("thead", {}, h("tr", {}, ["Instant", "Action", "Operation", "Written", "Rows", "Bytes", "Files"].map((name) => h("th", { scope: "col", class: ["Rows", "Bytes", "Files"].includes(name) ? "right" : null }, name)))),
        h(
          "tbody",
          {},
          found.commits.map((c) =>
            h(
              "tr",
              { "data-key": c.instant },
              h("td", { "data-label": "Instant", class: "mono" }, c.instant),
              h("td", { "data-label": "Action" }, c.action),
              h("td", { "data-label": "Operation" }, c.error ? h("span", { class: "sub", title: c.error }, "unreadable") : (c.facts.operation?.toLowerCase() ?? "–")),
              h("td", { "data-label": "Written" }, f.when(c.at)),
              h("td", { "data-label": "Rows", class: "right" }, f.number(c.facts?.rows)),
              h("td", { "data-label": "Bytes", class: "right" }, f.bytes(c.facts?.bytes_written)),
              h("td", { "data-label": "Files", class: "right" }, f.number(c.facts?.files)),
            ),
          ),
        ),
      ),
    found.more > 0 && h("p", { class: "sub" }, `${f.number(found.more)} older commits of others.`),
  );
}
