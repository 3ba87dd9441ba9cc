// States and kinds: a word, a sign that is clear without its colour, and a sentence.
import { h } from "./dom.js";

const PIPELINE = {
  ok: ["✓", "good", "The latest run went well."],
  running: ["▶", "busy", "A run is under way."],
  failing: ["✕", "bad", "The latest run failed."],
  late: ["◷", "warn", "It is behind its schedule."],
  paused: ["‖", "idle", "The DAG is paused in Airflow."],
  "never ran": ["–", "idle", "No run has been started yet."],
  unknown: ["?", "idle", "Airflow has no DAG of this pipeline."],
};

const TRANSACTION = {
  committed: ["✓", "good", "Committed: rows and offsets are in the table."],
  aborted: ["✕", "bad", "Aborted: none of its rows are visible."],
  superseded: ["⤼", "warn", "A later run took over from the same offsets; it can't commit any more."],
  void: ["∅", "idle", "Its plan was outdated before START-COMMIT was written; the coordinator planned again."],
  open: ["▶", "busy", "Open: participants may write."],
  decided: ["◑", "busy", "END-COMMIT is written; the commit is being carried out."],
  empty: ["○", "idle", "Nothing to read: no transaction was opened."],
  failed: ["✕", "bad", "The run failed before it opened a transaction."],
  running: ["▶", "busy", "The run has not opened a transaction yet."],
};

const KINDS = {
  backfill: "Loads the records of its data interval, except those that are already covered.",
  range: "Loads offsets or times that a person named, except those that are already covered.",
  replay: "Reads a committed interval again and replaces the rows that it wrote.",
  correction: "Moves the committed offsets by hand; reads nothing.",
  service: "Holds the table still for a table service.",
};

const WORKER = {
  writing: ["▶", "busy", "It writes ranges that it has claimed."],
  idle: ["✓", "good", "It is waiting for ranges."],
  lost: ["✕", "bad", "It is gone; other workers take over its ranges when its claims run out."],
  unknown: ["?", "idle", "Kafka doesn't say whether it is still running."],
  none: ["–", "idle", "There is no worker: each range is written by a separate Spark job."],
};

const known = (table, word) => table[word] ?? ["?", "idle", ""];
export const tone = (state) => known(TRANSACTION, state)[1];
export const sign = (state) => known(TRANSACTION, state)[0];

function badge([mark, colour, sentence], word, why) {
  return h("span", { class: `badge ${colour}`, title: why ?? sentence }, h("span", { class: "sign", "aria-hidden": "true" }, mark), word);
}

export const pipelineBadge = (state, why) => badge(known(PIPELINE, state), state, why);
export const workerBadge = (state) => badge(known(WORKER, state), state);
export const stateBadge = (state) => badge(known(TRANSACTION, state), state);
export const kindBadge = (kind, service) =>
  kind === "continue" ? null : h("span", { class: "kind", title: KINDS[kind] ?? kind }, service ? `${kind}: ${service}` : kind);

/** Notable facts about a transaction beside its state, each in a word or two. */
export function marks(t) {
  const found = [];
  if (t.replayed_by?.length) found.push(["replayed", `Read again and replaced by ${t.replayed_by.join(", ")}`]);
  if (t.missing?.length) found.push(["ranges left out", `Ranges ${t.missing.join(", ")} did not report; their offsets stayed.`]);
  if (t.losses?.length) found.push(["offsets lost", t.losses.join("\n")]);
  if (t.remarks?.length) found.push(["remarks", t.remarks.join("\n")]);
  if (t.takeovers) found.push(["taken over", "Another process carried the commit out."]);
  if (t.records_quarantined) found.push(["quarantined", `${t.records_quarantined} records were set aside.`]);
  if (t.state === "committed" && t.timeline === "absent") found.push(["not on the timeline", "The commit is gone from the table's timeline."]);
  if (t.state === "committed" && !t.records_read && !t.ranges?.length && t.kind === "continue") found.push(["empty", "It held no records."]);
  return found.map(([word, title]) => h("span", { class: "mark", title }, word));
}
