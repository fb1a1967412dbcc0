/** The filter box: the same words as on the command line and in the address. */
import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { completions } from "../lib/completions";
import { setQuery } from "../lib/router";

export function FilterBox({ q, words, hint }: { q: string; words: readonly string[]; hint?: string }) {
  const box = useRef<HTMLInputElement>(null);
  const typed = useSignal(q);
  useEffect(() => {
    if (box.current && box.current.value !== q) box.current.value = q;
    typed.value = q;
  }, [q]);
  return (
    <form
      class="head"
      role="search"
      onSubmit={(event) => {
        event.preventDefault();
        setQuery("q", box.current?.value.trim() ?? "");
      }}
    >
      <label class="hidden-text" for="filter">
        Filter
      </label>
      <input
        id="filter"
        ref={box}
        class="mono grows"
        list="filter-words"
        defaultValue={q}
        placeholder={hint ?? words.slice(0, 3).join(" ")}
        autoComplete="off"
        spellcheck={false}
        onInput={(event) => {
          typed.value = event.currentTarget.value;
        }}
      />
      <datalist id="filter-words">
        {completions(typed.value, words).map((word) => (
          <option key={word} value={word} />
        ))}
      </datalist>
      <button type="submit">Filter</button>
      {q && (
        <button type="button" class="plain" onClick={() => setQuery("q", "")}>
          Clear
        </button>
      )}
    </form>
  );
}
