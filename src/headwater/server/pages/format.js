// Numbers as people read them.

const plain = new Intl.NumberFormat("en");

export const count = (number) => plain.format(Math.round(number));

/** 12,345 stays, 1,234,567 is 1.23 M. */
export function short(number) {
  if (number < 1e5) return count(number);
  return number < 1e9 ? `${(number / 1e6).toFixed(2)} M` : `${(number / 1e9).toFixed(2)} G`;
}

export const percent = (share) => `${(100 * share).toFixed(share > 0 && share < 0.1 ? 1 : 0)} %`;

export function bytes(number) {
  let unit = 0;
  while (number >= 1024 && unit < 4) {
    number /= 1024;
    unit += 1;
  }
  return `${number.toFixed(number < 10 && unit > 0 ? 1 : 0)} ${["B", "KiB", "MiB", "GiB", "TiB"][unit]}`;
}

/** A time span in seconds. */
export function span(seconds) {
  if (seconds < 0.0005) return "0";
  if (seconds < 1) return `${(1000 * seconds).toFixed(seconds < 0.01 ? 1 : 0)} ms`;
  if (seconds < 60) return `${seconds.toFixed(seconds < 10 ? 2 : 1)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
  return `${Math.floor(seconds / 3600)} h ${Math.round((seconds % 3600) / 60)} min`;
}

/** The same where fractions of a second say nothing. */
export const age = (seconds) => (seconds < 60 ? `${Math.floor(seconds)} s` : span(seconds));

/** Seconds since 1970 as a time of day. */
export function clock(seconds) {
  return new Date(1000 * seconds).toLocaleTimeString("en-GB");
}
