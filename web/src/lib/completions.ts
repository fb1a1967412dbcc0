/** Completion of a filter: of the last word of the typed text. */

/** Return the texts that the typed text may become, by words that a filter knows. */
export function completions(typed: string, words: readonly string[]): string[] {
  const [, before = "", minus = "", last = ""] = /^(.*\s)?(-?)(\S*)$/s.exec(typed) ?? [];
  const used = new Set(before.split(/\s+/));
  return words
    .filter((word) => word.toLowerCase().startsWith(last.toLowerCase()) && word !== last && !used.has(minus + word))
    .map((word) => `${before}${minus}${word}`);
}
