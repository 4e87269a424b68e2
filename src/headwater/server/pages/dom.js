// Elements. Whatever comes from the server becomes text: nothing here reads HTML.

const SVG = "http://www.w3.org/2000/svg";

export const byId = (id) => document.getElementById(id);

/** An element with attributes, and children that are elements or text. */
export function element(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** The same for a part of a drawing. */
export function drawn(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value != null) node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child != null));
  return node;
}

/** Set a text only when it is another one, so that a selection in it stays. */
export function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

const shown = new WeakMap();

/**
 * Show one child an item, in order, behind the children that a parent has of itself. A child whose
 * item is still there stays the same element, with the focus, the selection and the scroll position
 * that are in it.
 *
 * @param keyOf item -> what it is known by
 * @param make item -> a new element
 * @param update (element, item): bring it up to date; called for new ones, too
 */
export function show(parent, items, keyOf, make, update) {
  const focused = document.activeElement;
  const before = shown.get(parent) ?? new Map();
  const keys = new Set(items.map(keyOf));
  for (const [key, child] of before) if (!keys.has(key) && before.delete(key)) child.remove();
  const now = new Map();
  let place = before.values().next().value ?? null;
  for (const item of items) {
    const key = keyOf(item);
    const child = before.get(key) ?? make(item);
    update(child, item);
    now.set(key, child);
    if (child === place) place = place.nextSibling;
    else parent.insertBefore(child, place);
  }
  shown.set(parent, now);
  if (focused !== document.activeElement && focused.isConnected) focused.focus({ preventScroll: true });
}

/** A bar of parts next to each other: [[class, share of 1], ...]; what is left stays empty. */
export function setBar(bar, parts, offset = 0) {
  const wanted = parts.filter(([, share]) => share > 0);
  while (bar.children.length > wanted.length) bar.lastChild.remove();
  while (bar.children.length < wanted.length) bar.append(element("i"));
  wanted.forEach(([name, share], index) => {
    const part = bar.children[index];
    part.className = name;
    part.style.width = `${100 * share}%`;
    part.style.marginInlineStart = index === 0 ? `${100 * offset}%` : "0";
  });
}
