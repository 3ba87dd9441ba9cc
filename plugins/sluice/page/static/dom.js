// Elements from plain values. Text is always text: nothing is ever parsed as HTML.

const SVG = "http://www.w3.org/2000/svg";
const SHAPES = new Set(["svg", "g", "rect", "line", "path", "circle", "text", "title", "defs", "pattern", "polyline"]);

/** An element: `h("a", { href: "#/" }, "Pipelines")`. Attributes that are null or false are left out. */
export function h(name, attributes, ...children) {
  const shape = SHAPES.has(name);
  const element = shape ? document.createElementNS(SVG, name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    element.setAttribute(key, value === true ? "" : value);
  }
  append(element, children);
  return element;
}

function append(element, children) {
  for (const child of children) {
    if (Array.isArray(child)) append(element, child);
    else if (child !== null && child !== undefined && child !== false) element.append(child);
  }
}

/** Make `old` like `fresh`, changing only what differs: focus, selection, open details and scrolling stay. */
export function morph(old, fresh) {
  for (const { name } of [...old.attributes]) {
    if (!fresh.hasAttribute(name) && !(name === "open" && old.nodeName === "DETAILS")) old.removeAttribute(name);
  }
  for (const { name, value } of fresh.attributes) {
    if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  morphChildren(old, fresh);
}

export function morphChildren(old, fresh) {
  if (old.dataset?.keep && old.dataset.keep === fresh.dataset?.keep) return;
  const keyed = new Map();
  for (const child of old.children) if (child.dataset?.key) keyed.set(child.dataset.key, child);
  let at = old.firstChild;
  for (const child of [...fresh.childNodes]) {
    const same = child.dataset?.key ? keyed.get(child.dataset.key) : match(at, child);
    if (!same) {
      old.insertBefore(child, at);
      continue;
    }
    if (same === at) at = at.nextSibling;
    else old.insertBefore(same, at);
    if (same.nodeType === Node.ELEMENT_NODE) morph(same, child);
    else if (same.data !== child.data) same.data = child.data;
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

function match(old, fresh) {
  return old && old.nodeName === fresh.nodeName && !old.dataset?.key ? old : null;
}
