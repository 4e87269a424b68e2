// Reading a page of metrics.

const LINE = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)/;
const LABEL = /(\w+)="((?:[^"\\]|\\.)*)"/g;

/** Samples by name: [{labels, value}, ...] each. */
export function parse(text) {
  const samples = new Map();
  for (const line of text.split("\n")) {
    const found = line.startsWith("#") ? null : LINE.exec(line);
    if (found === null) continue;
    const [, name, inner, value] = found;
    const labels = {};
    for (const [, label, content] of (inner ?? "").matchAll(LABEL)) labels[label] = unescaped(content);
    if (!samples.has(name)) samples.set(name, []);
    samples.get(name).push({ labels, value: Number(value) });
  }
  return samples;
}

const unescaped = (text) => text.replace(/\\(.)/g, (_, each) => (each === "n" ? "\n" : each));

/** The sum of a name's samples that `fits` accepts. */
export function total(samples, name, fits = () => true) {
  return (samples.get(name) ?? []).filter((s) => fits(s.labels)).reduce((sum, s) => sum + s.value, 0);
}
