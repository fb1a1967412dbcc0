/** Records of any kind, made from its declaration: a lifecycle that is added in Python is shown by this page. */
import type { ComponentChildren } from "preact";
import { ask, client, type components, post } from "../api/client";
import { recall, remember } from "../lib/diff";
import { useLoaded } from "../lib/loading";
import { machines, pictureOf, tableOf } from "../lib/machines";
import { usePages } from "../lib/pages";
import { query } from "../lib/router";
import { listOf, pageOf, recordPage } from "../lib/records";
import { useNews } from "../live/live";
import { Action } from "../ui/action";
import { Compare } from "../ui/compare";
import { History, pathOf } from "../ui/history";
import { More } from "../ui/more";
import { NewRows } from "../ui/new_rows";
import { Empty, Facts, Head, Json, Panel, Part, Picture, Refusal, State, States, Waiting, When } from "../ui/parts";

type View = components["schemas"]["RecordView"];
type Table = components["schemas"]["Blueprint"];

const PAGE = 100;

/** A column, whether a kind or a page of its records has values for it, and its cell. */
interface Column {
  readonly title: string;
  readonly has: (records: readonly View[], table: Table | undefined) => boolean;
  readonly show: (record: View, table: Table | undefined) => ComponentChildren;
}

const COLUMNS: readonly Column[] = [
  {
    title: "Id",
    has: () => true,
    show: (record) => (
      <a class="mono" href={recordPage(record.kind, record.id)}>
        {record.id}
      </a>
    ),
  },
  { title: "State", has: () => true, show: (record) => <State machine={record.kind} state={record.state} /> },
  {
    title: "Acts next",
    has: (_, table) => table?.states.some((state) => state.turn) ?? false,
    show: (record, table) => table?.states.find((state) => state.name === record.state)?.turn ?? "",
  },
  {
    title: "Deadline",
    has: (_, table) => Boolean(table?.deadlines?.length),
    show: (record) => <When at={record.deadline_at} />,
  },
  { title: "Queue", has: (records) => records.some((record) => record.queue), show: (record) => record.queue },
  {
    title: "Labels",
    has: (records) => records.some((record) => record.labels?.length),
    show: (record) => record.labels?.join(", "),
  },
  {
    title: "Belongs to",
    has: (records) => records.some((record) => record.parent),
    show: (record) => <span class="mono">{record.parent}</span>,
  },
  { title: "Created", has: () => true, show: (record) => <When at={record.created_at} /> },
  { title: "Changed", has: () => true, show: (record) => <When at={record.updated_at} /> },
];

export function Records({ kind }: { kind: string }) {
  const state = query.value.get("state") ?? "";
  const read = async (cursor: string, signal?: AbortSignal) => {
    const params = { path: { kind }, query: { state, limit: PAGE, cursor } };
    const page = await ask(client.GET("/api/records/{kind}", { params, ...(signal && { signal }) }));
    return { items: page.records, cursor: page.cursor };
  };
  const pages = usePages(`records ${kind} ${state}`, read, (record: View) => record.id);
  const { newest, problem, look } = pages;
  useNews((entry) => entry.kind === kind, look, 1_000);
  const table = machines.value.has(kind) ? tableOf(kind) : undefined;
  if (!pages.first) return <Waiting title={kind} problem={problem} />;
  const records = newest.rows;
  const columns = COLUMNS.filter((column) => column.has(records, table));

  return (
    <>
      <NewRows of={newest} />
      <Head title={kind}>
        {table && (
          <a class="button" href={`/machines/${encodeURIComponent(kind)}`}>
            Its lifecycle
          </a>
        )}
        <a class="button" href={`/journal?kind=${encodeURIComponent(kind)}`}>
          Its journal
        </a>
      </Head>
      {table?.doc && <p class="lead">{table.doc}</p>}
      <States list={listOf(kind)} states={table?.states.map((each) => each.name) ?? []} here={state} />
      <Refusal problem={problem} />
      <section class="panel scroll" aria-label={`List of records: ${kind}`}>
        <table>
          <thead>
            <tr>
              {columns.map((column) => (
                <th key={column.title}>{column.title}</th>
              ))}
            </tr>
          </thead>
          <tbody>
            {records.map((record) => (
              <tr key={record.id}>
                {columns.map((column) => (
                  <td key={column.title}>{column.show(record, table)}</td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
        {records.length === 0 && <Empty>{state ? `None is ${state}.` : "There are none."}</Empty>}
        <More of={pages} />
      </section>
    </>
  );
}

export function RecordPage({ kind, id }: { kind: string; id: string }) {
  const path = { params: { path: { kind, record_id: id } } };
  const { data, problem, look } = useLoaded(`record ${kind} ${id}`, async (signal) => {
    const record = await ask(client.GET("/api/records/{kind}/{record_id}", { ...path, signal }));
    if (record.body !== undefined) remember(`${kind} ${id}`, record.version, record.body);
    return record;
  });
  const story = useLoaded(`story ${kind} ${id}`, (signal) =>
    ask(client.GET("/api/records/{kind}/{record_id}/history", { params: { ...path.params, query: { newest: true } }, signal })),
  );
  useNews(
    (entry) => entry.kind === kind && entry.id === id,
    () => {
      look();
      story.look();
    },
  );
  const record = data.value;
  if (!record) return <Waiting title={id} problem={problem.value} />;
  const table = machines.value.has(kind) ? tableOf(kind) : undefined;
  const passed = pathOf(story.data.value?.entries ?? [], kind);
  const own = pageOf(kind, id);
  return (
    <>
      <Head
        title={
          <>
            <span class="mono">{record.id}</span> <State machine={kind} state={record.state} />
          </>
        }
      >
        {own !== recordPage(kind, id) && (
          <a class="button" href={own}>
            Its own page
          </a>
        )}
        {(record.actions ?? []).map((action) => (
          <Action
            key={action.request}
            done={`${action.event} was accepted.`}
            danger={action.stops ?? false}
            run={() => post(action.request)}
            then={look}
          >
            {verb(action.request)}
          </Action>
        ))}
      </Head>
      <Refusal problem={problem.value} again={look} />
      <div class="columns">
        <Panel title="About">
          <Facts
            rows={[
              ["kind", <a href={listOf(kind)}>{kind}</a>],
              ["version", record.version],
              ["created", <When at={record.created_at} />],
              ["changed", <When at={record.updated_at} />],
              ["deadline", record.deadline_at && <When at={record.deadline_at} />],
              ["ready", record.ready_at && <When at={record.ready_at} />],
              ["queue", record.queue],
              ["labels", record.labels?.join(", ")],
              ["priority", record.priority || ""],
              ["belongs to", record.parent && <span class="mono">{record.parent}</span>],
            ]}
          />
          {table && <Next table={table} state={record.state} />}
        </Panel>
        {table && (
          <Panel title="Lifecycle">
            <Picture
              src={pictureOf(kind, record.state, passed)}
              alt={`The lifecycle of a ${kind}. It is ${record.state}, after ${passed.join(", ") || "nothing"}.`}
            />
          </Panel>
        )}
      </div>
      <Compare kind={kind} version={record.version} entries={story.data.value?.entries ?? []} bodies={recall(`${kind} ${id}`)} />
      {record.body !== undefined && (
        <Panel title="Body">
          <details>
            <summary>As the store keeps it, version {record.version}</summary>
            <Json value={record.body} />
          </details>
        </Panel>
      )}
      <Part of={story}>{(page) => <History entries={page.entries} older={page.older ?? false} />}</Part>
    </>
  );
}

/** This state in the table: its meaning, the role that acts next, and the possible steps. */
function Next({ table, state }: { table: Table; state: string }) {
  const here = table.states.find((each) => each.name === state);
  const rows = table.transitions.filter((row) => row.from === state);
  if (!here) return null;
  return (
    <>
      <p>
        {here.doc} {here.turn && <span class="quiet">Acts next: {here.turn}.</span>}
      </p>
      {rows.length > 0 && (
        <ul class="tree" aria-label="Possible next steps">
          {rows.map((row) => (
            <li key={`${row.event} ${row.to} ${row.choice}`}>
              <code>{row.event}</code> → <State machine={table.machine} state={row.to} />{" "}
              <span class="quiet">
                by {row.owner}: {row.why}
              </span>
            </li>
          ))}
        </ul>
      )}
    </>
  );
}

/** Return the last word of an address, which names the action of the request. */
function verb(request: string): string {
  const word = request.split("/").pop() ?? "";
  return word.charAt(0).toUpperCase() + word.slice(1);
}
