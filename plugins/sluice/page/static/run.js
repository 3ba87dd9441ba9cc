// What Sluice did for one DAG, or in one DAG run: shown on Airflow's own pages of them.
import { load } from "./api.js";
import { h } from "./dom.js";
import * as f from "./format.js";
import { pipelineView, transactionLink } from "./pipeline.js";
import { transactionView } from "./transaction.js";
import { stateBadge } from "./words.js";

export async function dagView({ dag, query }, signal) {
  const { pipelines } = await load("dag", { dag_id: dag }, signal);
  if (pipelines.length) return pipelineView({ key: pipelines[0], query }, signal);
  return nothing(dag, "This DAG is not a Sluice pipeline.");
}

export async function runView({ dag, run }, signal) {
  const found = await load("run", { dag_id: dag, run_id: run }, signal);
  if (!found.pipelines.length && !found.transactions.length) return nothing(dag, "This DAG is not a Sluice pipeline.");
  if (!found.transactions.length) return nothing(dag, found.run?.note ?? whyNone(found.run?.state));
  const newest = await transactionView({ key: found.transactions[0].pipeline, instant: found.transactions[0].instant }, signal);
  if (found.transactions.length === 1) return newest;
  const earlier = (now) =>
    h(
      "p",
      { class: "sub" },
      "This run also opened ",
      found.transactions.slice(1).map((t) => [h("a", { class: "mono", href: transactionLink(t.pipeline, t.instant) }, t.instant), " ", stateBadge(t.state), " ", f.age(t.started, now), " "]),
    );
  return { ...newest, content: (now) => h("div", {}, newest.content(now), earlier(now)) };
}

function whyNone(state) {
  if (state === "running" || state === "queued") return "This run has not opened a transaction yet.";
  if (state === "success") return "The window was empty: there was nothing to read, and no transaction was opened.";
  return "This run opened no transaction. Its messages may have left the control topic.";
}

function nothing(dag, text) {
  return { data: { banners: [] }, title: dag, trail: [], content: () => h("section", { class: "panel empty" }, h("p", {}, text)) };
}
