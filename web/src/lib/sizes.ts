/** Sizes of files, in few characters. */

const UNITS = ["bytes", "kB", "MB", "GB", "TB"];

/** Return a size in the largest unit of which there is at least one: `812 bytes`, `1.2 kB`, `38 MB`. */
export function bytes(size: number): string {
  let [left, unit] = [size, 0];
  while (left >= 1000 && unit < UNITS.length - 1) {
    left /= 1000;
    unit += 1;
  }
  const shown = unit && left < 10 ? left.toFixed(1) : Math.round(left).toString();
  return `${shown} ${unit || size !== 1 ? UNITS[unit] : "byte"}`;
}
