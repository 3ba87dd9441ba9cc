// Charts as SVG in per cent of their width and pixels of their height: they fit any window without a script.
import { h } from "./dom.js";
import * as f from "./format.js";
import { sign, tone } from "./words.js";

const HEIGHT = 84;
const DASHES = ["", "6 3", "2 3", "8 3 2 3", "1 4", "12 4", "4 8"];
const percent = (value) => `${Math.round(value * 10000) / 100}%`;

function frame(title, note, max, format, content, label) {
  return h(
    "figure",
    { class: "chart" },
    h("figcaption", {}, h("span", {}, title), note && h("span", { class: "note" }, note)),
    h("div", { class: "plot" }, h("span", { class: "max", "aria-hidden": "true" }, max === null ? "" : format(max)), content(label)),
  );
}

/** Columns, one for each transaction, oldest first. `points`: { value, state, instant, tip }. */
export function columns({ title, points, format, note }) {
  // What is under way doesn't set the scale: one that hangs would flatten all the others.
  const ended = points.filter((p) => tone(p.state) !== "busy");
  const max = Math.max(0, ...(ended.length ? ended : points).map((p) => p.value ?? 0));
  const width = 1 / Math.max(points.length, 1);
  const summary = `${title}: ${points.length} transactions, at most ${format(max)}, the latest ${format(points.at(-1)?.value)}`;
  const bars = points.map((p, i) => {
    const height = max ? Math.min((p.value ?? 0) / max, 1) * (HEIGHT - 14) : 0;
    return h(
      "g",
      { class: `column ${tone(p.state)}`, "data-i": i, "data-tip": p.tip },
      h("rect", { class: "hit", x: percent(i * width), y: 0, width: percent(width), height: HEIGHT }),
      h("rect", { class: "bar", x: percent((i + 0.12) * width), y: HEIGHT - Math.max(height, 1), width: percent(width * 0.76), height: Math.max(height, 1) }),
    );
  });
  const drawing = (label) => h("svg", { height: HEIGHT, role: "img", "aria-label": label }, bars);
  return frame(title, note, max, format, drawing, summary);
}

/** Lines over the same transactions, each with its own dashes. `lines`: { name, lags }. */
export function lines({ title, lines: all, format, tips, states }) {
  const max = Math.max(0, ...all.flatMap((line) => line.lags.map((v) => v ?? 0)));
  const count = Math.max(...all.map((line) => line.lags.length), 1);
  const x = (i) => percent((i + 0.5) / count);
  const y = (value) => HEIGHT - 2 - (max ? (value / max) * (HEIGHT - 16) : 0);
  const drawn = all.map((line, n) => {
    const points = line.lags.map((v, i) => [i, v]).filter(([, v]) => v !== null);
    const parts = points.slice(1).map(([i, v], k) =>
      h("line", { x1: x(points[k][0]), y1: y(points[k][1]), x2: x(i), y2: y(v), "stroke-dasharray": DASHES[n % DASHES.length] }),
    );
    return h("g", { class: `line l${n}` }, parts, points.length === 1 && h("circle", { cx: x(points[0][0]), cy: y(points[0][1]), r: 2.5 }));
  });
  const hits = tips.map((tip, i) =>
    h("g", { class: `column ${tone(states[i])}`, "data-i": i, "data-tip": `${tip}\n${all.map((l) => `${l.name}: ${format(l.lags[i])}`).join("\n")}` },
      h("rect", { class: "hit", x: percent(i / count), y: 0, width: percent(1 / count), height: HEIGHT })),
  );
  const summary = `${title}, at most ${format(max)}. Latest: ${all.map((l) => `${l.name} ${format(l.lags.at(-1))}`).join(", ")}`;
  const drawing = (label) => h("svg", { height: HEIGHT, role: "img", "aria-label": label }, drawn, hits);
  const legend = all.map((line, n) =>
    h("span", { class: `legend l${n}` }, h("svg", { width: 22, height: 8, "aria-hidden": "true" }, h("line", { x1: 0, y1: 4, x2: 22, y2: 4, "stroke-dasharray": DASHES[n % DASHES.length] })), line.name),
  );
  const chart = frame(title, null, max, format, drawing, summary);
  chart.append(h("div", { class: "legends" }, legend));
  return chart;
}

/** The outcomes in a row of signs, each a link to its transaction. */
export function outcomes(points, link) {
  const dense = points.length > 90 ? "dense" : "";
  const cells = points.map((p) =>
    h("a", { class: `outcome ${tone(p.state)}`, href: link(p), "data-tip": p.tip, "aria-label": `${p.state} ${p.instant}` }, dense ? "" : sign(p.state)),
  );
  return h("div", { class: `outcomes ${dense}`, role: "group", "aria-label": "Outcomes, oldest first" }, cells);
}

/** The list's small chart of the latest transactions: rows written, and a mark below what was not committed. */
export function spark(points) {
  const max = Math.max(...points.map((p) => p.records), 1);
  const width = 1 / 24;
  const first = 24 - points.length;
  const bars = points.map((p, i) => {
    const height = Math.max((p.records / max) * 18, 1);
    const x = percent((first + i + 0.1) * width);
    return p.state === "committed"
      ? h("rect", { class: "bar good", x, y: 20 - height, width: percent(width * 0.8), height })
      : h("text", { class: tone(p.state), x: percent((first + i + 0.5) * width), y: 19, "text-anchor": "middle" }, sign(p.state));
  });
  const failed = points.filter((p) => p.state !== "committed").length;
  const label = points.length ? `The latest ${points.length} transactions, ${failed} of them not committed` : "No transactions yet";
  return h("svg", { class: "spark", width: 132, height: 22, role: "img", "aria-label": label }, bars);
}

/** How long an interval took, in seconds; one that is under way has taken until now. */
export function took(t, now) {
  return f.secondsBetween(t.started, t.ended ?? (t.state === "open" || t.state === "decided" ? new Date(now).toISOString() : lastSeen(t)));
}

function lastSeen(t) {
  return [t.decided, ...t.ranges.flatMap((r) => r.map((a) => a.ended)), t.started].filter(Boolean).sort().at(-1);
}

const LANES = 5;

/** An interval's parts in time: a line from START, a bar for each attempt at each range, and the commit. */
export function gantt(t, scale, now) {
  const at = (time) => Math.min(Math.max((f.secondsBetween(t.started, time) ?? 0) / scale, 0), 1);
  const end = took(t, now);
  const lanes = t.ranges.length > LANES ? [t.ranges.flat()] : t.ranges;
  const height = Math.max(lanes.length, 1) * 6 + 4;
  const began = t.ranges.flat().map((a) => a.began).filter(Boolean).sort()[0];
  const parts = [h("line", { class: "start", x1: 0, x2: percent(at(began ?? t.decided ?? t.ended ?? t.started)), y1: height / 2, y2: height / 2 })];
  parts.push(h("rect", { class: "edge", x: 0, y: 0, width: 1.5, height }));
  lanes.forEach((attempts, lane) =>
    attempts.forEach((a) => {
      const x = at(a.began ?? t.started);
      const shape = a.failed ? "bad" : a.counts ? "good" : "spare";
      parts.push(h("rect", { class: `attempt ${shape}`, x: percent(x), y: lane * 6 + 2.5, width: percent(Math.max(at(a.ended) - x, 0.004)), height: 4.5, rx: 1 }));
    }),
  );
  if (t.decided) {
    const x = at(t.decided);
    parts.push(h("rect", { class: "commit", x: percent(x), y: 2.5, width: percent(Math.max(at(t.ended ?? new Date(now).toISOString()) - x, 0.006)), height: height - 5.5, rx: 1 }));
  }
  if (end > scale * 1.001) parts.push(h("text", { x: "100%", y: height - 1, "text-anchor": "end" }, "»"));
  const label = `${f.duration(end)}: ${f.count(t.ranges.length, "range")}, ${f.count(t.ranges.flat().length, "attempt")}, ${t.ranges.flat().filter((a) => a.failed).length} failed`;
  return h("svg", { class: "gantt", height, role: "img", "aria-label": label }, parts);
}

/** The length that a window's intervals are drawn to: the longest, unless it dwarfs all the others. */
export function scaleOf(transactions, now) {
  const ended = transactions.filter((t) => tone(t.state) !== "busy");
  const lengths = (ended.length ? ended : transactions).map((t) => took(t, now) ?? 0).sort((a, b) => a - b);
  const usual = lengths[Math.floor(lengths.length * 0.9)] ?? 1;
  return Math.max(Math.min(lengths.at(-1) ?? 1, usual * 2.5), 0.5);
}
