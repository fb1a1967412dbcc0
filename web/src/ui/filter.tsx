/** The filter box: the same words as on the command line and in the address. */
import { useEffect, useRef } from "preact/hooks";
import { setQuery } from "../lib/router";

export function FilterBox({ q, words }: { q: string; words: readonly string[] }) {
  const box = useRef<HTMLInputElement>(null);
  useEffect(() => {
    if (box.current && box.current.value !== q) box.current.value = q;
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
        placeholder={words.slice(0, 3).join(" ")}
        autoComplete="off"
        spellcheck={false}
      />
      <datalist id="filter-words">
        {words.map((word) => (
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
