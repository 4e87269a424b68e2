// A stack of series over time: one column a bin.

import { drawn, element, say } from "./dom.js";
import { BINS, WIDTH } from "./history.js";

const HEIGHT = 100;

export class Chart {
  #columns = [];
  #pointed = null;

  /**
   * @param series [[name, what it is called, class], ...], the lowest first
   * @param format number -> text
   */
  constructor(place, title, series, format) {
    this.series = series;
    this.format = format;
    this.top = element("span", { class: "top" });
    this.when = element("span", { class: "when" });
    this.values = series.map(() => element("b"));
    this.paths = series.map(([, , name]) => drawn("path", { class: name }));
    this.cursor = drawn("rect", { class: "cursor", y: 0, width: 1, height: HEIGHT, visibility: "hidden" });
    this.drawing = drawn(
      "svg",
      {
        viewBox: `0 0 ${BINS} ${HEIGHT}`,
        preserveAspectRatio: "none",
        role: "img",
        tabindex: 0,
        onpointermove: (event) => this.#pointAt(event),
        onpointerleave: () => this.#point(null),
        onkeydown: (event) => this.#step(event),
        onblur: () => this.#point(null),
      },
      ...this.paths,
      this.cursor,
    );
    this.title = title;
    place.append(
      element("div", { class: "chart-head" }, element("h3", {}, title), this.when),
      element("div", { class: "chart" }, this.drawing, this.top),
      element("div", { class: "times" }, element("span", {}, `${(BINS * WIDTH) / 60} min ago`), element("span", {}, "now")),
      element(
        "p",
        { class: "legend" },
        ...series.flatMap(([, label, name], index) => [
          element("span", { class: `swatch ${name}` }),
          element("span", {}, `${label} `, this.values[index]),
        ]),
      ),
    );
  }

  /** Draw columns of numbers by series, oldest first; as high as `ceiling`, where there is one. */
  draw(columns, ceiling = 0) {
    this.#columns = columns;
    const sums = columns.map((column) => this.series.reduce((sum, [name]) => sum + (column?.[name] ?? 0), 0));
    const highest = ceiling || nice(Math.max(...sums));
    say(this.top, highest > 0 ? this.format(highest) : "");
    const floors = columns.map(() => 0);
    this.series.forEach(([name], index) => {
      const path = columns.map((column, bin) => {
        const value = column?.[name] ?? 0;
        if (!(value > 0)) return "";
        const bottom = HEIGHT - (HEIGHT * floors[bin]) / highest;
        floors[bin] += value;
        return `M${bin} ${bottom}V${HEIGHT - (HEIGHT * floors[bin]) / highest}h1V${bottom}Z`;
      });
      this.paths[index].setAttribute("d", path.join(""));
    });
    this.#tell();
  }

  #pointAt(event) {
    const box = this.drawing.getBoundingClientRect();
    this.#point(Math.floor((BINS * (event.clientX - box.left)) / box.width));
  }

  #step(event) {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (by === undefined) return;
    event.preventDefault();
    this.#point((this.#pointed ?? BINS) + by);
  }

  #point(bin) {
    this.#pointed = bin === null ? null : Math.min(Math.max(bin, 0), BINS - 1);
    this.#tell();
  }

  /** The numbers of the column that is pointed at, or of the last one. */
  #tell() {
    const bin = this.#pointed ?? BINS - 1;
    const column = this.#columns[bin];
    this.cursor.setAttribute("visibility", this.#pointed === null ? "hidden" : "visible");
    this.cursor.setAttribute("x", bin);
    say(this.when, this.#pointed === null ? "" : `${(BINS - 1 - bin) * WIDTH} s ago`);
    this.series.forEach(([name], index) => say(this.values[index], column ? this.format(column[name] ?? 0) : "–"));
    const told = this.series.map(([, label], index) => `${label} ${this.values[index].textContent}`);
    this.drawing.setAttribute("aria-label", `${this.title}. ${this.when.textContent || "Now"}: ${told.join(", ")}.`);
  }
}

/** The next 1, 2 or 5 with zeros behind it. */
function nice(number) {
  if (!(number > 0)) return 0;
  const power = 10 ** Math.floor(Math.log10(number));
  return [1, 2, 5, 10].map((each) => each * power).find((each) => each >= number);
}
