/** Go to any id or page by typing it, and see which keys there are. */
import { useSignal } from "@preact/signals";
import { useLayoutEffect, useRef } from "preact/hooks";
import { machines } from "../lib/machines";
import { kindOf, listOf, pageOf } from "../lib/records";
import { go } from "../lib/router";
import { KEYS, palette } from "./keys";

interface Target {
  readonly label: string;
  /** The address that it leads to, or the button of this page that it presses. */
  readonly to: string | HTMLButtonElement;
}

/** Return the actions of the page as it is now: its own buttons, so that an action without a button cannot be done. */
function actions(): HTMLButtonElement[] {
  return [...document.querySelectorAll<HTMLButtonElement>("main > .head .acts button:not(:disabled)")];
}

function targetsFor(text: string): Target[] {
  const said = text.trim();
  const acts = actions()
    .map((button) => ({ label: `Do: ${button.innerText}`, to: button }))
    .filter((each) => each.label.toLowerCase().includes(said.toLowerCase()));
  const known = kindOf(said);
  const ids = known ? [{ label: `${known.charAt(0).toUpperCase()}${known.slice(1).replaceAll("_", " ")} ${said}`, to: pageOf(known, said) }] : [];
  const pages = KEYS.filter(([, title]) => title.toLowerCase().includes(said.toLowerCase())).map(([, title, to]) => ({
    label: title,
    to,
  }));
  const kinds = [...machines.value.values()].filter((one) => one.recorded !== false).map((one) => one.name);
  const [kind = "", id = ""] = said.split(/\s+/);
  const record = id && kinds.includes(kind) ? [{ label: `${kind} ${id}`, to: pageOf(kind, id) }] : [];
  const lists = kinds
    .filter((name) => said && name.includes(said.toLowerCase()))
    .map((name) => ({ label: `Records of the kind ${name}`, to: listOf(name) }));
  const filter = said.includes(":") ? [{ label: `Jobs ${said}`, to: `/jobs?q=${encodeURIComponent(said)}` }] : [];
  return [...ids, ...record, ...filter, ...pages, ...acts, ...lists];
}

export function Palette() {
  const dialog = useRef<HTMLDialogElement>(null);
  const text = useSignal("");
  const chosen = useSignal(0);
  const open = palette.value;
  // Before the next key can arrive: an effect that waits for the picture would leave that key to the page.
  useLayoutEffect(() => {
    if (open) {
      text.value = "";
      chosen.value = 0;
      dialog.current?.showModal();
    } else dialog.current?.close();
  }, [open]);
  function escaped(): void {
    palette.value = ""; // the next key may come before the dialog tells that it is closed
  }
  function closed(): void {
    if (!dialog.current?.open) palette.value = ""; // it may have been opened again meanwhile
  }
  const targets = targetsFor(text.value);
  function choose(target: Target | undefined): void {
    if (!target) return;
    palette.value = "";
    dialog.current?.close(); // an action may open a dialog of its own
    if (typeof target.to === "string") go(target.to);
    else target.to.click();
  }
  return (
    <dialog ref={dialog} aria-label={open === "keys" ? "Keys" : "Find"} onCancel={escaped} onClose={closed}>
      {open === "keys" && (
        <>
          <h2>Keys</h2>
          <dl class="facts">
            {KEYS.map(([keys, title]) => (
              <>
                <dt>
                  <kbd>{keys}</kbd>
                </dt>
                <dd>{title}</dd>
              </>
            ))}
            <dt>
              <kbd>/</kbd> <kbd>⌘K</kbd>
            </dt>
            <dd>Find an id, a page or an action</dd>
            <dt>
              <kbd>n</kbd>
            </dt>
            <dd>Show the new rows of a list</dd>
            <dt>
              <kbd>j</kbd> <kbd>k</kbd> <kbd>x</kbd> <kbd>c</kbd> <kbd>r</kbd>
            </dt>
            <dd>In the list of jobs: next, previous, select, cancel, retry</dd>
            <dt>
              <kbd>+</kbd> <kbd>-</kbd> <kbd>0</kbd>
            </dt>
            <dd>Zoom the graph of a run, or show all of it</dd>
          </dl>
          <button type="button" onClick={() => { palette.value = ""; }}>
            Close
          </button>
        </>
      )}
      {open === "find" && (
        <>
          <label for="palette">Find an id, a page, an action of this page, or jobs by a filter</label>
          <input
            id="palette"
            class="mono wide"
            value={text.value}
            autoComplete="off"
            spellcheck={false}
            placeholder="j_… or state:failed"
            role="combobox"
            aria-expanded="true"
            aria-controls="palette-targets"
            aria-activedescendant={targets.length ? `target-${chosen.value}` : undefined}
            onInput={(event) => {
              text.value = event.currentTarget.value;
              chosen.value = 0;
            }}
            onKeyDown={(event) => {
              if (event.key === "ArrowDown") chosen.value = Math.min(chosen.value + 1, targets.length - 1);
              else if (event.key === "ArrowUp") chosen.value = Math.max(chosen.value - 1, 0);
              else if (event.key === "Enter") choose(targets[chosen.value]);
              else return;
              event.preventDefault();
            }}
          />
          <ul id="palette-targets" class="targets" role="listbox" aria-label="Found">
            {targets.map((target, place) => (
              <li
                key={target.label}
                id={`target-${place}`}
                role="option"
                aria-selected={place === chosen.value}
                onClick={() => choose(target)}
              >
                {target.label}
              </li>
            ))}
          </ul>
        </>
      )}
    </dialog>
  );
}
