// Numbers, times and sizes for people.
import { h } from "./dom.js";

const WHOLE = new Intl.NumberFormat();
const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
const NONE = "–";

export const number = (value) => (value === null || value === undefined ? NONE : WHOLE.format(value));
/** `1 file`, `2 files`. */
export const count = (value, thing) => `${number(value)} ${thing}${value === 1 ? "" : "s"}`;

export function bytes(value) {
  if (value === null || value === undefined) return NONE;
  let unit = 0;
  while (value >= 1024 && unit < UNITS.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${value >= 100 || unit === 0 ? Math.round(value) : value.toFixed(1)} ${UNITS[unit]}`;
}

/** A time of so many seconds: `4.2 s`, `3 min 5 s`, `2 h 10 min`, `5 d 3 h`. */
export function duration(seconds) {
  if (seconds === null || seconds === undefined || Number.isNaN(seconds)) return NONE;
  if (seconds < 0) seconds = 0;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 60) return `${Math.round(seconds)} s`;
  const parts = [
    [86400, "d", 3600, "h"],
    [3600, "h", 60, "min"],
    [60, "min", 1, "s"],
  ];
  for (const [large, largeName, small, smallName] of parts) {
    if (seconds < large) continue;
    const whole = Math.floor(seconds / large);
    const rest = Math.floor((seconds % large) / small);
    return rest && whole < 100 ? `${whole} ${largeName} ${rest} ${smallName}` : `${whole} ${largeName}`;
  }
  return NONE;
}

/** A position of a source: an offset; of a database's table a time in microseconds, a number, or a snapshot's number. */
export function position(value, kind) {
  if (kind !== "times" || value === null || value === undefined) return number(value);
  return when(new Date(value / 1000).toISOString(), { date: true, milliseconds: true });
}
/** What lies between two positions. */
export const distance = (value, kind) => (kind === "times" && value !== null && value !== undefined ? duration(value / 1e6) : number(value));

export const secondsBetween = (begin, end) => (begin && end ? (Date.parse(end) - Date.parse(begin)) / 1000 : null);
export const secondsSince = (time, now) => (time ? (now - Date.parse(time)) / 1000 : null);

const utc = (time) => `${new Date(time).toISOString().replace("T", " ").replace("Z", "")} UTC`;

/** A time in the browser's zone, with UTC in its title. */
export function when(time, { date = "auto", milliseconds = false } = {}) {
  if (!time) return NONE;
  const at = new Date(time);
  const today = at.toDateString() === new Date().toDateString();
  const clock = { hour: "2-digit", minute: "2-digit", second: "2-digit" };
  if (milliseconds) clock.fractionalSecondDigits = 3;
  const day = date === true || (date === "auto" && !today) ? { ...(at.getFullYear() === new Date().getFullYear() ? {} : { year: "numeric" }), month: "short", day: "numeric" } : {};
  const text = new Intl.DateTimeFormat(undefined, { ...day, ...clock, hourCycle: "h23" }).format(at);
  return h("time", { datetime: time, title: utc(time) }, text);
}

/** How long ago, with the moment itself in its title. */
export function age(time, now) {
  if (!time) return NONE;
  const seconds = secondsSince(time, now);
  const text = seconds < 2 ? "just now" : `${duration(seconds < 10 ? Math.round(seconds) : seconds)} ago`;
  return h("time", { datetime: time, title: `${new Date(time).toLocaleString()} (${utc(time)})` }, text.replace(".0 ", " "));
}
