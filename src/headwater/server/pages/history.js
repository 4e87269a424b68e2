// Numbers over the last minutes, in bins of equal width.

export const WIDTH = 5; // seconds
export const BINS = 60;

/** Holds an object of numbers for each bin; null where nothing is known. */
export class History {
  #bins = new Map();

  /** Add to what happened in the bin of a time, in seconds. */
  add(time, numbers) {
    const bin = this.#bins.get(at(time)) ?? {};
    for (const [name, value] of Object.entries(numbers)) bin[name] = (bin[name] ?? 0) + value;
    this.#bins.set(at(time), bin);
  }

  /** Say how things are in the bin of a time. */
  set(time, numbers) {
    this.#bins.set(at(time), numbers);
  }

  /** The bins up to a time, oldest first; older ones are forgotten. */
  upTo(time) {
    const last = at(time);
    for (const bin of this.#bins.keys()) if (bin <= last - BINS) this.#bins.delete(bin);
    return Array.from({ length: BINS }, (_, index) => this.#bins.get(last - BINS + 1 + index) ?? null);
  }

  clear() {
    this.#bins.clear();
  }
}

const at = (time) => Math.floor(time / WIDTH);
