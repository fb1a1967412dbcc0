/** Limits: the size of each, how full it is, which jobs hold its slots and which wait; set, change and delete one. */
import type { ComponentChildren } from "preact";
import { ask, client, type components, type Problem, requestId } from "../api/client";
import { TIME_PASSES_MS, useEvery, useLoaded } from "../lib/loading";
import { listOf } from "../lib/records";
import { usePages } from "../lib/pages";
import { query } from "../lib/router";
import { sees } from "../lib/session";
import { span } from "../lib/time";
import { useNews } from "../live/live";
import { Action } from "../ui/action";
import { CopyAs } from "../ui/copy";
import { More } from "../ui/more";
import { NewRows } from "../ui/new_rows";
import { SetLimit } from "../ui/set_limit";
import { Empty, Facts, Head, Panel, Refusal, State, States, Waiting, When } from "../ui/parts";

type Limit = components["schemas"]["LimitView"];
type Key = components["schemas"]["KeyView"];

const PAGE = 50;
const LOOK_EVERY_MS = 1_000;
const KINDS = new Set(["limit", "limit_gate", "limit_ticket", "job"]);
const GATE = "limit_gate";

/** Return the address of the page of a limit, or of one of its keys. */
export const limitPage = (name: string) => `/limits/${encodeURIComponent(name)}`;

const isPattern = (name: string) => name.endsWith("*");
const plus = (capped: boolean | undefined) => (capped ? "+" : "");

/** Read again when something has happened, and now and then: a slot that is given back leaves no entry in the journal. */
function useLook(look: () => void): void {
  useNews((entry) => KINDS.has(entry.kind), look, LOOK_EVERY_MS);
  useEvery(TIME_PASSES_MS, look);
}

/** The size of a limit, in words. */
function allows({ spec }: Limit): string {
  const parts = [];
  if (spec.max != null) parts.push(`${spec.max.toLocaleString()} at the same time`);
  if (spec.rate != null) {
    const burst = spec.burst ?? spec.rate;
    const starts = `${spec.rate.toLocaleString()} ${spec.rate === 1 ? "start" : "starts"} every ${span((spec.period_s ?? 1) * 1_000)}`;
    parts.push(burst === spec.rate ? starts : `${starts}, up to ${burst.toLocaleString()} at once`);
  }
  return parts.join("; ");
}

export function Limits() {
  const read = async (cursor: string, signal?: AbortSignal) => {
    const params = { query: { keys: 1, limit: PAGE, cursor } };
    const page = await ask(client.GET("/api/limits", { params, ...(signal && { signal }) }));
    return { items: page.limits, cursor: page.cursor ?? "" };
  };
  const pages = usePages("limits", read, (one: Limit) => one.name);
  const { newest, problem, look } = pages;
  useLook(look);
  if (!pages.first) return <Waiting title="Limits" problem={problem} />;
  const limits = newest.rows;
  return (
    <>
      <NewRows of={newest} />
      <Head title="Limits">
        <SetLimit look={look} />
      </Head>
      <Refusal problem={problem} again={look} />
      <section class="panel scroll" aria-label="List of limits">
        {limits.length > 0 && (
          <table class="middle">
            <thead>
              <tr>
                <th>Limit</th>
                <th>Allows</th>
                <th>In use</th>
                <th class="number">Waiting</th>
                <th>Declared in</th>
                <th>
                  <span class="hidden-text">Actions</span>
                </th>
              </tr>
            </thead>
            <tbody>
              {limits.map((one) => (
                <tr key={one.name}>
                  <td>
                    <a class="mono nowrap" href={limitPage(one.name)}>
                      {one.name}
                    </a>
                  </td>
                  <td>
                    {allows(one)}
                    {isPattern(one.name) && <span class="quiet"> for each key</span>}
                  </td>
                  <td class="nowrap">{isPattern(one.name) ? <KeysInUse one={one} /> : <Use of={one.keys?.[0]} one={one} />}</td>
                  <td class="number">
                    {isPattern(one.name) ? <FullKeys one={one} /> : <Line of={one.keys?.[0]} />}
                  </td>
                  <td class="quiet">{one.source}</td>
                  <td>
                    <span class="acts">
                      <Acts one={one} look={look} />
                    </span>
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        )}
        {limits.length === 0 && (
          <Empty>
            No limit is declared. Declare one with <code>interlock limit set vendor-x --max 5</code>.
          </Empty>
        )}
        <More of={pages} />
      </section>
    </>
  );
}

/** How full a key is: its slots, or how many may start. */
function Use({ of: key, one }: { of: Key | undefined; one: Limit }) {
  const { max, rate } = one.spec;
  const used = key?.used ?? 0;
  const left = key?.starts_left ?? one.spec.burst ?? rate;
  return (
    <>
      {max != null && (
        <>
          <progress class="bar-of" value={Math.min(used, max)} max={max} aria-label={`Slots of ${key?.key ?? one.name} in use`} /> {used} of {max}
        </>
      )}
      {rate != null && (
        <span>
          {max != null && "; "}
          {left} may start now
        </span>
      )}
    </>
  );
}

function KeysInUse({ one }: { one: Limit }) {
  const number = one.in_use ?? 0;
  return (
    <>
      {number.toLocaleString()}
      {plus(one.capped)} {number === 1 ? "key" : "keys"}
    </>
  );
}

/** For how many keys of a pattern jobs wait. */
function FullKeys({ one }: { one: Limit }) {
  const number = one.full ?? 0;
  if (!number) return <>0</>;
  return (
    <a href={`${limitPage(one.name)}?state=full`}>
      for {number.toLocaleString()}
      {plus(one.capped && number >= (one.in_use ?? 0))} {number === 1 ? "key" : "keys"}
    </a>
  );
}

/** How many jobs are in line for a key. */
function Line({ of: key }: { of: Key | undefined }) {
  return (
    <>
      {(key?.waiting ?? 0).toLocaleString()}
      {plus(key?.capped)}
    </>
  );
}

function Acts({ one, look }: { one: Limit; look: () => void }) {
  return (
    <>
      <SetLimit one={one} look={look} />
      <Action
        request="POST /api/limits/delete"
        done={`${one.name} is deleted; jobs that waited for it are admitted.`}
        ask={`Delete the limit ${one.name}? Jobs that wait for it are admitted.`}
        danger
        run={() => ask(client.POST("/api/limits/delete", { body: { limit: one.name, request_id: requestId() } }))}
        then={look}
      >
        Delete
      </Action>
    </>
  );
}

export function LimitPage({ name }: { name: string }) {
  return isPattern(name) ? <PatternPage name={name} /> : <KeyPage name={name} />;
}

/** One key: its slots, and the line. */
function KeyPage({ name }: { name: string }) {
  const { data, problem, look } = useLoaded(`limit ${name}`, (signal) =>
    ask(client.GET("/api/limits/show", { params: { query: { limit: name } }, signal })),
  );
  useLook(look);
  const one = data.value;
  if (!one) return <Waiting title={name} problem={problem.value} />;
  const key = one.keys?.[0];
  return (
    <Frame name={name} one={one} state={key?.state ?? "free"} problem={problem.value} look={look}>
      <OneKey one={one} of={key} />
    </Frame>
  );
}

/** The keys of a pattern that are in use, page by page. */
function PatternPage({ name }: { name: string }) {
  const state = query.value.get("state") ?? "";
  const read = async (cursor: string, signal?: AbortSignal) => {
    const params = { query: { limit: name, state: state as "", count: PAGE, cursor } };
    const { limit, keys, cursor: next } = await ask(client.GET("/api/limits/keys", { params, ...(signal && { signal }) }));
    return { limit, items: keys, cursor: next };
  };
  const pages = usePages(`keys of ${name} ${state}`, read, (key: Key) => key.key);
  const { first, newest, problem, look } = pages;
  useLook(look);
  if (!first) return <Waiting title={name} problem={problem} />;
  const { limit: one } = first;
  const keys = newest.rows;
  return (
    <Frame name={name} one={one} problem={problem} look={look}>
      <NewRows of={newest} />
      <Panel title={`Keys in use: ${(one.in_use ?? 0).toLocaleString()}${plus(one.capped)}`}>
        <States list={limitPage(name)} states={["held", "full"]} here={state} />
        {keys.length > 0 && (
          <div class="scroll">
            <table class="middle">
              <thead>
                <tr>
                  <th>Key</th>
                  <th>State</th>
                  <th>In use</th>
                  <th class="number">Waiting</th>
                </tr>
              </thead>
              <tbody>
                {keys.map((key) => (
                  <tr key={key.key}>
                    <td>
                      <a class="mono" href={limitPage(key.key)}>
                        {key.key}
                      </a>
                    </td>
                    <td>
                      <State machine={GATE} state={key.state ?? "free"} />
                    </td>
                    <td class="nowrap">
                      <Use of={key} one={one} />
                    </td>
                    <td class="number">
                      <Line of={key} />
                    </td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        )}
        {keys.length === 0 && <Empty>{state ? `None is ${state}.` : "No job holds a slot or waits for one."}</Empty>}
        <More of={pages} />
      </Panel>
    </Frame>
  );
}

interface FrameProps {
  readonly name: string;
  readonly one: Limit;
  readonly state?: string;
  readonly problem: Problem | undefined;
  readonly look: () => void;
  readonly children: ComponentChildren;
}

/** The common part of the page of a limit and that of one of its keys. */
function Frame({ name, one, state, problem, look, children }: FrameProps) {
  const own = one.name === name;
  return (
    <>
      <Head
        title={
          <>
            <span class="mono">{name}</span> {state && <State machine={GATE} state={state} />}
          </>
        }
      >
        {own && <Acts one={one} look={look} />}
      </Head>
      <Refusal problem={problem} again={look} />
      <p class="lead linked">
        {allows(one)}
        {isPattern(one.name) && ", for each key"}.
        {!own && (
          <>
            {" "}
            It follows the limit <a href={limitPage(one.name)}>{one.name}</a>.
          </>
        )}
      </p>
      {children}
      <Panel title="About">
        <About one={one} />
      </Panel>
      <CopyAs
        ways={[
          ["a terminal", `interlock limit show '${name}'`],
          ["curl", `curl '${location.origin}/api/limits/show?limit=${encodeURIComponent(name)}'`],
          ["Python", `await il.limits.get("${name}")`],
        ]}
      />
    </>
  );
}

/** The jobs that hold the slots of one key, and the line. */
function OneKey({ one, of: key }: { one: Limit; of: Key | undefined }) {
  const holders = key?.holders ?? [];
  const line = key?.line ?? [];
  const behind = key?.behind ?? [];
  const waiting = key?.waiting ?? 0;
  const others = (key?.used ?? 0) - holders.reduce((sum, each) => sum + (each.weight ?? 1), 0);
  return (
    <>
      <Panel title="In use">
        <p>
          <Use of={key} one={one} />
        </p>
        {holders.length > 0 && (
          <div class="scroll">
            <table>
              <thead>
                <tr>
                  <th>Held by</th>
                  <th>Task</th>
                  <th>Queue</th>
                  <th class="number">Slots</th>
                  <th>Since</th>
                  <th>Runner</th>
                  <th>Lease ends</th>
                </tr>
              </thead>
              <tbody>
                {holders.map((each) => (
                  <tr key={each.job_id}>
                    <td>
                      <a class="mono" href={`/jobs/${encodeURIComponent(each.job_id)}`}>
                        {each.job_id}
                      </a>
                    </td>
                    <td class="mono">{each.task}</td>
                    <td>{each.queue}</td>
                    <td class="number">{each.weight ?? 1}</td>
                    <td>
                      <When at={each.since} />
                    </td>
                    <td class="mono">{each.runner_id ?? <span class="quiet">waits for a worker</span>}</td>
                    <td>
                      <When at={each.expires_at} />
                    </td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        )}
        {others > 0 && <p class="quiet">Other jobs hold {others.toLocaleString()} more slots.</p>}
      </Panel>
      <Panel title={`Waiting: ${waiting.toLocaleString()}${plus(key?.capped)}`}>
        {line.length > 0 && (
          <div class="scroll">
            <table>
              <thead>
                <tr>
                  <th>Next in line</th>
                  <th>Task</th>
                  <th>Queue</th>
                  <th class="number">Priority</th>
                  <th>In line since</th>
                </tr>
              </thead>
              <tbody>
                {line.map((each) => (
                  <tr key={each.job_id}>
                    <td>
                      <a class="mono" href={`/jobs/${encodeURIComponent(each.job_id)}`}>
                        {each.job_id}
                      </a>
                    </td>
                    <td class="mono">{each.task}</td>
                    <td>{each.queue}</td>
                    <td class="number">{each.priority ?? 0}</td>
                    <td>
                      <When at={each.since} />
                    </td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        )}
        {waiting > line.length && <p class="quiet">These are the first {line.length} in line.</p>}
        {line.length === 0 && <Empty>No job waits in line.</Empty>}
        {behind.length > 0 && (
          <p class="linked">
            The next job of{" "}
            {behind.slice(0, 20).map((each, place) => (
              <>
                {place > 0 && ", "}
                <a href={limitPage(each)}>{each}</a>
              </>
            ))}
            {behind.length > 20 && ` and ${behind.length - 20} other keys`} waits for this limit as well.
          </p>
        )}
      </Panel>
    </>
  );
}

function About({ one }: { one: Limit }) {
  const { spec } = one;
  return (
    <Facts
      rows={[
        ["description", spec.description],
        ["slots", spec.max],
        ["rate", spec.rate != null && `${spec.rate} every ${span((spec.period_s ?? 1) * 1_000)}`],
        ["burst", spec.rate != null && (spec.burst ?? spec.rate)],
        ["declared in", one.source],
        ["by", one.by],
        ["created", <When at={one.created_at} />],
        ["changed", <When at={one.updated_at} />],
        ["record", sees("GET /api/records/{kind}") && <a href={`${listOf("limit")}/${encodeURIComponent(one.name)}`}>as the store keeps it</a>],
      ]}
    />
  );
}
