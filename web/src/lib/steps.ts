/** The log of an attempt, cut into its steps: lines of the level `step` begin one, `passed` and `failed` end it. */

export interface Line {
  readonly at: string;
  readonly level: string;
  readonly text: string;
  readonly shard: number;
  readonly attempt: number;
}

export type StepState = "" | "waiting" | "running" | "passed" | "failed" | "stopped" | "left out";

export interface Step<T extends Line = Line> {
  readonly title: string;
  /** Empty for lines before and after the steps. */
  readonly state: StepState;
  readonly lines: readonly T[];
  readonly from?: string;
  /** Missing while it runs. */
  readonly to?: string;
}

interface Open<T> {
  title: string;
  state: StepState;
  lines: T[];
  from?: string;
  to?: string;
}

/** Return the lines of each attempt, named by shard and number, the latest first. */
export function attemptsOf<T extends Line>(lines: readonly T[]): [string, T[]][] {
  const found = new Map<string, T[]>();
  for (const line of lines) {
    const name = `${line.shard}.${line.attempt}`;
    const own = found.get(name);
    if (own) own.push(line);
    else found.set(name, [line]);
  }
  return [...found].sort(([, a], [, b]) => (b[0]?.attempt ?? 0) - (a[0]?.attempt ?? 0) || (a[0]?.shard ?? 0) - (b[0]?.shard ?? 0));
}

/** Return the steps of one attempt; `over` when it writes no more. Titles are those that its job was given. */
export function stepsOf<T extends Line>(lines: readonly T[], titles: readonly string[], over: boolean): Step<T>[] {
  const before: Open<T> = { title: "Before the steps", state: "", lines: [] };
  const after: Open<T> = { title: "After the steps", state: "", lines: [] };
  const steps: Open<T>[] = [];
  let inside: Open<T> | undefined;
  for (const line of lines) {
    if (line.level === "step") {
      if (inside) end(inside, line.at);
      inside = { title: titles[steps.length] || line.text, state: "running", lines: [line], from: line.at };
      steps.push(inside);
    } else if (inside) {
      inside.lines.push(line);
      if (line.level !== "passed" && line.level !== "failed") continue;
      inside.state = line.level;
      inside.to = line.at;
      inside = undefined;
    } else (steps.length ? after : before).lines.push(line);
  }
  if (inside && over) end(inside, lines.at(-1)?.at);
  if (!steps.length && !titles.length) before.title = "Log";
  const missing = titles.slice(steps.length).map<Open<T>>((title) => ({ title, state: over ? "left out" : "waiting", lines: [] }));
  return [...(before.lines.length ? [before] : []), ...steps, ...missing, ...(after.lines.length ? [after] : [])];
}

/** End a step of which nothing says how it ended. */
function end<T extends Line>(step: Open<T>, at: string | undefined): void {
  step.state = step.lines.some((line) => line.level === "error" || line.level === "critical") ? "failed" : "stopped";
  if (at) step.to = at;
}
