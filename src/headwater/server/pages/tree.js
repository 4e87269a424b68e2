// The prefix tree: a row a node, its bar where its tokens lie. A branch begins where its parent ends.
//
//     0–96     ████████░░░░░░░░░░░░░
//       96–160 ░░░░░░░░██████░░░░░░░
//       96–128 ░░░░░░░░███░░░░░░░░░░

import { byId, element, say, setBar, show } from "./dom.js";
import { age, bytes, count } from "./format.js";

export class Tree {
  #closed = new Set(); // nodes whose branches are not shown
  #nodes = [];

  /** Show the most used nodes of a server. */
  show(nodes) {
    this.#nodes = nodes;
    this.#draw();
  }

  #draw() {
    const nodes = this.#nodes;
    byId("tree").hidden = byId("tree-key").hidden = nodes.length === 0;
    byId("pins").hidden = true;
    const domains = byDomain(nodes);
    const kept = nodes.reduce((sum, node) => sum + node.bytes, 0);
    say(byId("tree-note"), nodes.length === 0
      ? "Nothing is cached yet."
      : `The ${count(nodes.length)} most used nodes, in ${count(domains.length)} sharing ${domains.length === 1 ? "domain" : "domains"}: ${bytes(kept)} of KV. Requests of one domain share what they have in common.`);
    const longest = Math.max(1, ...nodes.map((node) => node.start + node.length));
    show(byId("tree"), domains, ({ name }) => name, () => element("tbody"), (body, domain) =>
      show(body, [domain, ...this.#rows(domain.roots, 0)], keyOf, (item) => this.#row(item), (row, item) => update(row, item, longest)),
    );
  }

  /** The nodes in the order of the tree, each under its parent. */
  #rows(nodes, depth) {
    const alike = commonLength(nodes.map(({ node }) => node.head ?? ""));
    return nodes.flatMap((each) => {
      const open = !this.#closed.has(each.node.id);
      return [{ ...each, depth, open, alike }, ...(open ? this.#rows(each.branches, depth + 1) : [])];
    });
  }

  #row({ node }) {
    if (node === undefined) return element("tr", { class: "domain" }, element("th", { colspan: 2, scope: "rowgroup" }), ...cells(5));
    const button = element("button", { type: "button", class: "fold", onclick: () => this.#fold(node.id) });
    const name = element("td", { class: "node" }, button, element("span"), element("q", { hidden: true }));
    return element("tr", {}, name, element("td", { class: "axis" }, element("div", { class: "bar" })), ...cells(5));
  }

  #fold(id) {
    if (!this.#closed.delete(id)) this.#closed.add(id);
    this.#draw();
  }
}

/** What a tenant may see instead: why not more, and its own pins. */
export function showPins(pins, why) {
  byId("tree").hidden = byId("tree-key").hidden = true;
  byId("pins").hidden = pins.length === 0;
  say(byId("tree-note"), `${why} ${pins.length === 0 ? "You have no pins." : "Your own pins:"}`);
  show(byId("pins").tBodies[0], pins, ({ id }) => id, () => element("tr", {}, element("td"), ...cells(3)), (row, pin) => {
    const [id, tokens, size, left] = row.cells;
    say(id, `${pin.id}`);
    say(tokens, `${count(pin.pinned_tokens)}`);
    say(size, bytes(pin.bytes));
    say(left, age(pin.expires_in));
  });
}

const cells = (many) => Array.from({ length: many }, () => element("td", { class: "number" }));
const keyOf = ({ node }) => node?.id ?? "domain";

/** Domains with their nodes as trees; the busiest first. */
function byDomain(nodes) {
  const found = new Map();
  const branches = new Map();
  for (const node of nodes) {
    const item = { node, branches: [] };
    branches.set(node.id, item);
    if (!found.has(node.domain)) found.set(node.domain, { name: node.domain, roots: [], nodes: [] });
    const domain = found.get(node.domain);
    domain.nodes.push(node);
    (branches.get(node.parent)?.branches ?? domain.roots).push(item);
  }
  return [...found.values()];
}

function update(row, { node, branches, depth, open, alike, name, nodes }, longest) {
  if (node === undefined) updateDomain(row, name, nodes);
  else {
    const [title, axis] = row.cells;
    const [button, positions, text] = title.children;
    title.style.paddingInlineStart = `${0.9 * Math.min(depth, 12)}rem`;
    button.disabled = branches.length === 0;
    button.setAttribute("aria-expanded", open);
    button.setAttribute("aria-label", `${branches.length} branches at ${node.start + node.length}`);
    say(positions, `${count(node.start)}–${count(node.start + node.length)}`);
    text.hidden = node.head === undefined;
    say(text, headOf(node, alike));
    text.title = node.head ?? "";
    const rest = node.length - node.ready;
    setBar(
      axis.firstChild,
      [["reused", node.ready / longest], [node.promised ? "promised" : "gone", rest / longest]],
      node.start / longest,
    );
    numbers(row, node.length, node.bytes, node.uses, node.idle, stateOf(node));
  }
}

/** A node's text from where it differs from its siblings'. A branch begins at a whole page. */
function headOf({ head = "" }, alike) {
  return alike > 0 ? `…${head.slice(alike)}` : head;
}

/** How long texts are the same, in whole words; 0 when that would leave nothing of one, or is of one. */
function commonLength(texts) {
  const [first, ...others] = texts;
  if (others.length === 0) return 0;
  let length = 0;
  while (length < first.length && others.every((each) => each[length] === first[length])) length += 1;
  if (texts.some((each) => each.length === length)) return 0;
  while (/[\p{L}\p{N}\p{Cs}]/u.test(first[length - 1] ?? "")) length -= 1;
  return length;
}

function updateDomain(row, name, nodes) {
  const sum = (field) => nodes.reduce((so_far, node) => so_far + node[field], 0);
  say(row.cells[0], name === "" ? "everyone" : name);
  numbers(row, sum("length"), sum("bytes"), null, Math.min(...nodes.map((node) => node.idle)), "");
}

function numbers(row, length, size, uses, idle, state) {
  const [tokens, kv, used, idleFor, last] = [...row.cells].slice(-5);
  say(tokens, count(length));
  say(kv, bytes(size));
  say(used, uses === null ? "" : count(uses));
  say(idleFor, age(idle));
  say(last, state);
  last.className = "state";
}

function stateOf(node) {
  if (node.promised) return "being computed";
  if (node.holders > 0) return "in use";
  return node.ready === 0 ? "gone" : "";
}
