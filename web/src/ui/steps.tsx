/** The log of a job of a run, step by step: folded, live, and with a way to the first error. */
import { useSignal } from "@preact/signals";
import { useRef } from "preact/hooks";
import { ask, client } from "../api/client";
import { useLoaded } from "../lib/loading";
import { hasEnded } from "../lib/machines";
import { attemptsOf, type Step, stepsOf, type StepState } from "../lib/steps";
import { useNews } from "../live/live";
import { keyOf, type Line, LogLine, MOST_SHOWN, useLines } from "./log";
import { Empty, Refusal, Took } from "./parts";
import "../styles/steps.css";

const MEANINGS: Readonly<Record<StepState, string>> = {
  "": "",
  waiting: "waiting",
  running: "active",
  passed: "good",
  failed: "bad",
  stopped: "stopped",
  "left out": "stopped",
};

/** The steps of a job that has started. */
export function Steps({ job }: { job: string }) {
  const { data, problem, look } = useLoaded(`steps of ${job}`, (signal) =>
    ask(client.GET("/api/jobs/{job_id}", { params: { path: { job_id: job } }, signal })),
  );
  useNews((entry) => entry.id === job, look);
  const lines = useLines(job);
  const wanted = useSignal("");
  const turned = useSignal<ReadonlyMap<string, boolean>>(new Map());
  const box = useRef<HTMLDivElement>(null);
  if (!data.value) return problem.value ? <Refusal problem={problem.value} /> : <Empty>Loading …</Empty>;

  const attempts = attemptsOf(lines.value);
  const [latest] = attempts;
  const [name, own] = attempts.find(([each]) => each === wanted.value) ?? latest ?? ["", []];
  const attempt = data.value.attempts?.find((each) => `${each.shard}.${each.index}` === name);
  const over = attempt ? hasEnded("attempt", attempt.state) : hasEnded("job", data.value.state);
  const steps = stepsOf(own, titlesIn(data.value.input), over);
  const keyed = steps.map((step, place) => ({ step, key: `${name} ${place}` }));
  const isOpen = (key: string, step: Step): boolean => turned.value.get(key) ?? opensItself(step, steps);
  const turn = (key: string, open: boolean): void => {
    turned.value = new Map([...turned.value, [key, open]]);
  };

  function jump(): void {
    const found = keyed.find(({ step }) => step.state === "failed") ?? keyed.find(({ step }) => hasError(step));
    if (!found) return;
    turn(found.key, true);
    requestAnimationFrame(() => {
      const folded = box.current?.querySelector(`[data-step="${found.key}"]`);
      const line = folded?.querySelector("[data-loud]") ?? folded;
      line?.scrollIntoView({ block: "center" });
      folded?.querySelector<HTMLElement>(".log")?.focus({ preventScroll: true });
    });
  }

  return (
    <div ref={box} class="steps">
      <div class="acts">
        {attempts.length > 1 && (
          <label>
            Attempt{" "}
            <select
              value={name}
              onChange={(event) => {
                wanted.value = event.currentTarget.value;
              }}
            >
              {attempts.map(([each]) => (
                <option key={each}>{each}</option>
              ))}
            </select>
          </label>
        )}
        {steps.some((step) => step.state === "failed" || hasError(step)) && (
          <button type="button" onClick={jump}>
            First error
          </button>
        )}
      </div>
      {keyed.map(({ step, key }) => (
        <details
          key={key}
          data-step={key}
          open={isOpen(key, step)}
          onToggle={(event) => {
            if (event.currentTarget.open !== isOpen(key, step)) turn(key, event.currentTarget.open);
          }}
        >
          <summary>
            <span class="title">{step.title}</span>
            {step.state && <span class={`chip ${MEANINGS[step.state]}`}>{step.state}</span>}
            <span class="quiet number">{step.from && <Took from={step.from} to={step.to} />}</span>
          </summary>
          {isOpen(key, step) && <Lines lines={step.lines} title={step.title} />}
        </details>
      ))}
      {!steps.length && <Empty>Nothing was written yet.</Empty>}
    </div>
  );
}

function Lines({ lines, title }: { lines: readonly Line[]; title: string }) {
  if (!lines.length) return <p class="quiet">Nothing was written.</p>;
  const shown = lines.slice(-MOST_SHOWN);
  return (
    <>
      {shown.length < lines.length && <p class="quiet">{lines.length - shown.length} earlier lines are on the job's page.</p>}
      <ol class="log mono" tabIndex={0} aria-label={`Lines of ${title}`}>
        {shown.map((line) => (
          <LogLine key={keyOf(line)} line={line} />
        ))}
      </ol>
    </>
  );
}

/** Current and failed steps are open at first; so is a log without steps. */
function opensItself(step: Step, steps: readonly Step[]): boolean {
  return step.state === "running" || step.state === "failed" || steps.length === 1;
}

function hasError(step: Step): boolean {
  return step.lines.some((line) => line.level === "error" || line.level === "critical");
}

/** Return the titles of the steps that a shell job was given: the name of each, or the first line that it runs. */
function titlesIn(input: unknown): string[] {
  const { steps } = (typeof input === "object" && input !== null ? input : {}) as { steps?: unknown };
  if (!Array.isArray(steps)) return [];
  return steps.map((step: { name?: unknown; run?: unknown } | null) => {
    const [first] = String(step?.run ?? "").trim().split("\n", 1);
    return String(step?.name || first || "");
  });
}
