// The page's own data, and the way to Airflow's pages around it.

const BASE = location.pathname.replace(/[^/]*$/, "");
export const AIRFLOW = BASE.replace(/sluice\/$/, "");

export class RequestError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/** JSON of one of the page's routes: `load("pipeline", { key })`. */
export async function load(route, parameters, signal) {
  const query = new URLSearchParams(Object.entries(parameters ?? {}).filter(([, value]) => value !== null));
  let response;
  try {
    response = await fetch(`${BASE}api/v1/${route}?${query}`, { signal, headers: { Accept: "application/json" } });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new RequestError(0, "Airflow's API server doesn't answer.");
  }
  if (response.ok) return response.json();
  const said = await response.json().catch(() => ({}));
  const known = {
    401: "You are logged out. Load the page again to log in.",
    403: "You may not read this.",
    404: said.detail,
    503: said.detail,
  };
  const fallback = `Airflow's API server answered with status ${response.status}; its log says why.`;
  throw new RequestError(response.status, known[response.status] ?? fallback);
}

const part = encodeURIComponent;
export const dagUrl = (dag) => `${AIRFLOW}dags/${part(dag)}`;
export const runUrl = (dag, run) => `${dagUrl(dag)}/runs/${part(run)}`;
export const taskUrl = (dag, run, task, index = null) =>
  `${runUrl(dag, run)}/tasks/${part(task)}${index === null ? "" : `/mapped/${index}`}`;

/** Follow a link to one of Airflow's pages. The frame may not navigate the page around it, which routes by itself. */
export function openInAirflow(url) {
  if (parent === self) return false;
  parent.history.pushState(null, "", url);
  parent.dispatchEvent(new PopStateEvent("popstate", { state: null }));
  return true;
}

/** Show this view in the address bar of the page around, so that it can be copied; only where that page is ours. */
export function mirrorAddress() {
  if (parent === self) return;
  try {
    const own = `${AIRFLOW}plugin/sluice`;
    const path = parent.location.pathname;
    if (path !== own && !path.startsWith(`${own}/`)) return;
    parent.history.replaceState(parent.history.state, "", `${own}${BASE}${location.hash}`);
  } catch {
    // framed by another origin: its address is none of ours
  }
}
