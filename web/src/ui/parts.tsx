/** Small things that every page is made of. */
import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";
import type { Problem } from "../api/client";
import { holdPage, type Loaded } from "../lib/loading";
import { meaningOf } from "../lib/machines";
import { idsIn, kindOf, pageOf } from "../lib/records";
import { ago, exact, now, span } from "../lib/time";

/** A state in the colour of its meaning; the word is there for those who see no colours. */
export function State({ machine, state }: { machine: string; state: string }) {
  return <span class={`chip ${meaningOf(machine, state)}`}>{state}</span>;
}

/** The states of a lifecycle, each a link to the part of a list that is in it. */
export function States({ list, states, here }: { list: string; states: readonly string[]; here: string }) {
  if (!states.length) return null;
  return (
    <nav class="views" aria-label="States">
      {["", ...states].map((state) => (
        <a
          key={state}
          href={state ? `${list}?state=${encodeURIComponent(state)}` : list}
          aria-current={state.toLowerCase() === here.toLowerCase() ? "true" : undefined}
        >
          {state || "All"}
        </a>
      ))}
    </nav>
  );
}

/** How many jobs there are in each state. */
export function Tally({ tally }: { tally: Readonly<Record<string, number>> }) {
  return (
    <>
      {Object.entries(tally).map(([state, number]) => (
        <span key={state} class="nowrap">
          {number} <State machine="job" state={state} />
        </span>
      ))}
    </>
  );
}

/** How long ago something was; the exact moment when it is pointed at. */
export function When({ at }: { at: string | null | undefined }) {
  if (!at) return <span class="quiet">–</span>;
  return (
    <time dateTime={at} title={exact(at)} class="nowrap">
      {ago(at, now.value)}
    </time>
  );
}

/** How long something took, or has taken so far. */
export function Took({ from, to }: { from: string | null | undefined; to: string | null | undefined }) {
  if (!from) return <span class="quiet">–</span>;
  const end = to ? Date.parse(to) : now.value;
  return <span class="nowrap">{span(Math.max(0, end - Date.parse(from)))}</span>;
}

/** A picture that the server draws; the page waits for it, so that nothing moves when it is there. */
export function Picture({ src, alt }: { src: string; alt: string }) {
  const release = useRef(() => {});
  useLayoutEffect(() => {
    release.current = holdPage();
    return () => release.current();
  }, []);
  return <img class="picture" src={src} alt={alt} onLoad={() => release.current()} onError={() => release.current()} />;
}

interface RefusalProps {
  readonly problem: Problem | undefined;
  /** Repeat the request that was refused. */
  readonly again?: () => void;
  /** Show also that the server is gone: where that stopped something that does not continue by itself. */
  readonly always?: boolean;
}

/** The error in the words of the server, with the next step; that the server is gone is shown once for all pages. */
export function Refusal({ problem, again, always = false }: RefusalProps) {
  if (!problem || (problem.code === "unreachable" && !always)) return null;
  return (
    <div class="notice bad" role="alert">
      <Words text={problem.message} />{" "}
      {problem.todo && (
        <span class="todo">
          <Words text={problem.todo} />
        </span>
      )}
      {problem.allowed.length > 0 && <span> Allowed: {problem.allowed.join(", ")}.</span>}
      {again && (
        <>
          {" "}
          <button type="button" onClick={again}>
            Try again
          </button>
        </>
      )}
    </div>
  );
}

/** The heading of a page, with its actions. */
export function Head({ title, children }: { title: ComponentChildren; children?: ComponentChildren }) {
  return (
    <div class="head">
      <h1 tabIndex={-1}>{title}</h1>
      <div class="acts">{children}</div>
    </div>
  );
}

/** A page that has nothing to show yet: it is loading, or was refused. */
export function Waiting({ title, problem }: { title: ComponentChildren; problem: Problem | undefined }) {
  return (
    <>
      <Head title={title} />
      {problem ? <Refusal problem={problem} /> : <Empty>Loading …</Empty>}
    </>
  );
}

/** One part of a page that is read on its own: its content, or its own refusal, which leaves the others alone. */
export function Part<T>({ of, children }: { of: Loaded<T>; children: (data: T) => ComponentChildren }) {
  const data = of.data.value;
  return (
    <>
      <Refusal problem={of.problem.value} again={of.look} />
      {data !== undefined && children(data)}
    </>
  );
}

export function Panel({ title, children }: { title?: string; children: ComponentChildren }) {
  return (
    <section class="panel">
      {title && <h2>{title}</h2>}
      {children}
    </section>
  );
}

/** Facts as pairs; empty ones are left out. */
export function Facts({ rows }: { rows: readonly (readonly [string, ComponentChildren])[] }) {
  return (
    <dl class="facts">
      {rows
        .filter(([, value]) => value !== "" && value !== null && value !== undefined && value !== false)
        .map(([name, value]) => (
          <>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </>
        ))}
    </dl>
  );
}

export function Empty({ children }: { children: ComponentChildren }) {
  return <p class="empty">{children}</p>;
}

/** A sentence of the server, in which ids lead to their pages. */
export function Words({ text }: { text: string }) {
  return (
    <>
      {idsIn(text).map((piece, place) =>
        place % 2 ? (
          <a key={place} class="mono" href={pageOf(kindOf(piece), piece)}>
            {piece}
          </a>
        ) : (
          piece
        ),
      )}
    </>
  );
}

/** JSON as a person reads it. It is text: nothing in it can become markup. */
export function Json({ value }: { value: unknown }) {
  return <pre>{typeof value === "string" ? value : JSON.stringify(value, null, 2)}</pre>;
}
