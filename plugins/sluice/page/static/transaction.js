// One transaction: its plan, its ranges with every attempt, its audit, and its messages.
import { load, runUrl, taskUrl } from "./api.js";
import { took } from "./charts.js";
import { h } from "./dom.js";
import * as f from "./format.js";
import { pipelineLink } from "./list.js";
import { legend, transactionLink } from "./pipeline.js";
import { kindBadge, marks, stateBadge } from "./words.js";

const open = { messages: null }; // of which transaction the messages are shown, and what they are

export async function transactionView({ key, instant }, signal) {
  const data = await load("transaction", { key, instant }, signal);
  return { data, title: instant, trail: [[data.pipeline, pipelineLink(data.pipeline)]], content: (now) => view(data, now) };
}

/** Read the messages, at the press of the button. */
export async function showMessages(key, instant) {
  open.messages = { key, instant, loading: true };
  try {
    open.messages = { key, instant, ...(await load("messages", { key, instant })) };
  } catch (error) {
    open.messages = { key, instant, error: error.message };
  }
}

export function view(t, now) {
  return h("article", {}, heading(t), facts(t), story(t, now), ranges(t), offsets(t), messages(t));
}

function heading(t) {
  return h(
    "div",
    { class: "heading" },
    h("h1", {}, h("span", { class: "mono" }, t.instant), " ", stateBadge(t.state), " ", kindBadge(t.kind, t.service), " ", marks(t)),
    t.run && h("a", { class: "button", href: runUrl(t.dag_id, t.run.run_id), "data-airflow": true }, "Open the run"),
    t.abort_reason && h("p", { class: "why" }, h("span", { class: "said" }, t.abort_reason)),
    t.reason && h("p", { class: "sub" }, `Asked for: ${t.reason}`),
  );
}

// Written and quarantined always; the others where there are any.
function accounted(t) {
  return ["written", "deleted", "quarantined", "filtered", "skipped"]
    .filter((name) => t[`records_${name}`] || name === "written" || name === "quarantined")
    .map((name) => `${f.number(t[`records_${name}`])} ${name}`)
    .join(" + ");
}

function facts(t) {
  const other = (instant) => h("a", { class: "mono", href: transactionLink(t.pipeline, instant) }, instant);
  const audit = t.audit.holds ? "✓ accounted for" : "✕ not accounted for";
  const where = { completed: "completed", pending: "pending", archived: "archived, or gone", absent: "not there" };
  if (t.state !== "committed") where.archived = where.absent;
  const pairs = [
    ["Rows written", h("span", { class: "figure" }, f.number(t.records_written))],
    ["Audit", h("span", { title: "read = written + deleted + quarantined + filtered + skipped", class: t.audit.holds ? "" : "bad" }, `${f.number(t.records_read)} read = ${accounted(t)} ${audit}`)],
    ["Bytes", `${f.bytes(t.bytes_read)} read, ${f.bytes(t.bytes_written)} written in ${f.count(t.files, "file")}, ${f.count(t.file_groups, "file group")}`],
    t.positions === "offsets" && ["Offsets without a record", f.number(t.gaps)],
    ["Lag left", f.distance(t.lag_left, t.positions)],
    t.state === "committed" && ["Complete through", f.when(t.valid_through, { date: true })],
    ["Table's timeline", where[t.timeline] ?? "not read"],
    ["DAG run", t.dag_id === "sluice" ? `by hand: ${t.run_id}` : h("a", { href: runUrl(t.dag_id, t.run_id), "data-airflow": true }, t.run_id)],
    ["Epoch", f.number(t.epoch)],
    t.replays && ["Replays", other(t.replays)],
    t.replayed_by.length && ["Replayed by", t.replayed_by.map(other)],
    t.superseded_by && ["Superseded by", other(t.superseded_by)],
    t.replaced_file_groups && ["File groups replaced", f.number(t.replaced_file_groups)],
    t.missing.length && ["Ranges left out", t.missing.join(", ")],
    t.losses.length && ["Offsets given up", h("ul", {}, t.losses.map((loss) => h("li", {}, loss)))],
    t.remarks?.length && ["Remarks", h("ul", {}, t.remarks.map((remark) => h("li", {}, remark)))],
  ].filter(Boolean);
  return h("dl", { class: "facts" }, pairs.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}

/** Every step in time, each on a separate line. */
function story(t, now) {
  const total = Math.max(took(t, now) ?? 0, 0.1);
  const position = (time) => Math.min(Math.max((f.secondsBetween(t.started, time) ?? 0) / total, 0), 1) * 100;
  const bar = (shape, begin, end) => {
    const x = position(begin);
    return h("svg", { class: "gantt", height: 14, "aria-hidden": "true" }, h("rect", { class: shape, x: `${x}%`, y: 2, width: `${Math.max(position(end) - x, 0.4)}%`, height: 10, rx: 2 }));
  };
  const attempts = t.whole_ranges.flatMap((r) => r.attempts.map((a, i) => ({ ...a, number: r.number, try: i + 1 })));
  const first = attempts.map((a) => a.began).filter(Boolean).sort()[0] ?? t.decided ?? t.ended;
  const lines = [["START-COMMIT", t.started, first && bar("start", t.started, first), f.duration(f.secondsBetween(t.started, first)), "plan, instant opened, then waiting for the first write job"]];
  for (const a of attempts.slice(0, 60)) {
    const shape = a.failed ? "attempt bad" : a.counts ? "attempt good" : "attempt spare";
    const said = a.failed ? "failed" : a.counts ? f.count(a.records_written, "row") : "not needed";
    lines.push([`write ${a.number}${a.try > 1 ? `, attempt ${a.try}` : ""}`, a.began ?? t.started, bar(shape, a.began ?? t.started, a.ended), a.began ? f.duration(f.secondsBetween(a.began, a.ended)) : "–", said]);
  }
  if (t.decided) lines.push(["END-COMMIT", t.decided, bar("commit", t.decided, t.ended ?? new Date(now).toISOString()), f.duration(f.secondsBetween(t.decided, t.ended)), "The table's commit"]);
  if (t.ended) lines.push([t.state === "committed" ? "ACK-COMMIT" : "ABORT-COMMIT", t.ended, null, "", t.state === "committed" ? "rows and offsets are in the table" : "none of its rows are visible"]);
  return h(
    "section",
    { "aria-labelledby": "story" },
    h("div", { class: "heading" }, h("h2", { id: "story" }, `Steps, ${f.duration(total)} in all`)),
    h("table", { class: "rows story" }, h("tbody", {}, lines.map(([name, time, drawing, length, said]) =>
      h("tr", {}, h("th", { scope: "row" }, name), h("td", { "data-label": "At" }, f.when(time, { milliseconds: true })), h("td", { class: "drawing" }, drawing), h("td", { "data-label": "Took", class: "right" }, length), h("td", { class: "sub" }, said))))),
    attempts.length > 60 && h("p", { class: "sub" }, `${f.number(attempts.length - 60)} more attempts are listed below.`),
    legend(),
  );
}

function ranges(t) {
  if (!t.whole_ranges.length) return null;
  return h(
    "section",
    { "aria-labelledby": "ranges" },
    h("div", { class: "heading" }, h("h2", { id: "ranges" }, "Ranges")),
    t.whole_ranges.map((r) => range(t, r)),
  );
}

function range(t, r) {
  const counting = r.attempts.find((a) => a.counts);
  const failed = r.attempts.filter((a) => a.failed).length;
  const verdict = counting ? "written" : t.missing.includes(r.number) ? "left out" : failed ? "failed" : "has not reported";
  const reached = new Map((counting?.partitions ?? []).map((p) => [stretch(p), p]));
  const name = namer(t);
  const planned = r.planned.slice(0, 50);
  return h(
    "div",
    { class: "panel range", "data-key": `range ${r.number}` },
    h(
      "div",
      { class: "heading" },
      h("h3", {}, `Range ${r.number}: ${verdict}`),
      t.dag_id !== "sluice" && h("a", { href: taskUrl(t.dag_id, t.run_id, "write", r.number), "data-airflow": true }, "task log"),
      h("span", { class: "sub" }, failed ? `${f.count(r.attempts.length, "attempt")}, ${f.number(failed)} failed` : f.count(r.attempts.length, "attempt")),
    ),
    h(
      "table",
      { class: "rows inner" },
      h("thead", {}, h("tr", {}, [t.positions === "offsets" ? "Partition" : "Table and split", "From", "To (not included)", "Records", "Without a record", "Bytes", "Latest record", "Lag left"].map((name, i) => h("th", { scope: "col", class: i && i !== 6 ? "right" : null }, name)))),
      h("tbody", {}, planned.map((p) => {
        const got = reached.get(stretch(p));
        return h(
          "tr",
          {},
          h("td", { "data-label": "Partition" }, name(p)),
          h("td", { "data-label": "From", class: "right" }, f.position(p.start, t.positions)),
          h("td", { "data-label": "To", class: "right" }, f.position(p.end, t.positions), p.behind && h("span", { class: "mark", title: "Limits left records for the next interval" }, "more waits")),
          h("td", { "data-label": "Records", class: "right" }, f.number(got?.records)),
          h("td", { "data-label": "Without a record", class: "right" }, t.positions === "offsets" ? f.number(got?.gaps) : "–"),
          h("td", { "data-label": "Bytes", class: "right" }, f.bytes(got?.bytes)),
          h("td", { "data-label": "Latest record" }, f.when(got?.max_timestamp)),
          h("td", { "data-label": "Lag left", class: "right" }, f.distance(p.lag_left, t.positions)),
        );
      })),
    ),
    r.planned_total > planned.length && h("p", { class: "sub" }, `${f.number(r.planned_total - planned.length)} more partitions; START-COMMIT below names them all.`),
    r.attempts.filter((a) => a.error).map((a) => h("div", { class: "error" }, h("strong", {}, `Attempt ${r.attempts.indexOf(a) + 1} failed (${{ retry: "may pass: tried again", act: "needs a person", fail_run: "fails the run" }[a.recovery] ?? "failed"})`), h("pre", {}, a.error))),
  );
}

/** A key for a planned stretch of offsets. */
const stretch = (p) => `${p.cluster} ${p.topic} ${p.partition} ${p.start}`;

/** Names a partition, with its cluster if the transaction has partitions of several. */
function namer(t) {
  const partitions = [...t.whole_ranges.flatMap((r) => r.planned), ...t.idle, ...t.passed_over];
  const several = new Set(partitions.map((p) => p.cluster)).size > 1;
  return (p) => `${several ? `${p.cluster}/` : ""}${p.topic}[${p.partition}]`;
}

function offsets(t) {
  const name = namer(t);
  const rows = [
    ...t.idle.map((p) => [name(p), "nothing to read", p.end, p.lag_left]),
    ...t.passed_over.map((p) => [name(p), h("span", {}, "passed over from ", f.position(p.start, t.positions)), p.end, null]),
  ];
  if (!rows.length) return null;
  return h(
    "section",
    { "aria-labelledby": "idle" },
    h("div", { class: "heading" }, h("h2", { id: "idle" }, "Other partitions")),
    h("table", { class: "rows" }, h("thead", {}, h("tr", {}, ["Partition", "", "Offset", "Lag left"].map((name, i) => h("th", { scope: "col", class: i > 1 ? "right" : null }, name)))),
      h("tbody", {}, rows.slice(0, 100).map(([name, what, at, lag]) => h("tr", {}, h("td", { "data-label": "Partition" }, name), h("td", {}, what), h("td", { "data-label": "Offset", class: "right" }, f.position(at, t.positions)), h("td", { "data-label": "Lag left", class: "right" }, f.distance(lag, t.positions)))))),
    t.others_total > 100 && h("p", { class: "sub" }, `${f.number(t.others_total - 100)} more partitions; START-COMMIT below names them all.`),
  );
}

function messages(t) {
  const shown = open.messages?.instant === t.instant && open.messages.key === t.pipeline ? open.messages : null;
  const button = h("button", { type: "button", "data-messages": t.instant, "data-pipeline": t.pipeline, disabled: shown?.loading }, shown?.messages ? "Read again" : "Show the messages");
  return h(
    "section",
    { "aria-labelledby": "messages" },
    h("div", { class: "heading" }, h("h2", { id: "messages" }, "Messages"), button, h("span", { class: "sub" }, `${f.number(t.control_offsets.length)} in the control topic, from offset ${f.number(t.control_offsets[0])} to ${f.number(t.control_offsets.at(-1))}`)),
    shown?.error && h("p", { class: "why" }, shown.error),
    shown?.gone > 0 && h("p", { class: "sub" }, `${f.number(shown.gone)} messages have already left the topic.`),
    shown?.left_out > 0 && h("p", { class: "sub" }, `${f.number(shown.left_out)} messages are left out: there are too many, or they are too large. Read them with a consumer.`),
    shown?.messages?.map(({ offset, message }) =>
      h("details", { class: "message", "data-key": `message ${offset}`, "data-keep": `message ${t.instant} ${offset}` }, h("summary", {}, h("span", { class: "mono" }, f.number(offset)), " ", h("strong", {}, message.type), ` ${message.sender} `, f.when(message.time, { milliseconds: true }), message.error ? h("span", { class: "bad" }, " failed") : null), h("pre", {}, JSON.stringify(message, null, 2))),
    ),
  );
}
