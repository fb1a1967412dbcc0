/** Machines: every lifecycle's table and picture, from the same declaration that the server enforces. */
import { ask, client } from "../api/client";
import { useLoaded } from "../lib/loading";
import { machines, pictureOf } from "../lib/machines";
import { listOf, pageOf } from "../lib/records";
import { sees } from "../lib/session";
import { span } from "../lib/time";
import { useNews } from "../live/live";
import { Head, Panel, Picture, State, Waiting, When } from "../ui/parts";

export function Machines() {
  const all = [...machines.value.values()];
  return (
    <>
      <Head title="Machines" />
      <Panel title="How they depend on each other">
        <Picture src="/api/machines/interlocking.svg" alt="Which machine sends what to which other one." />
      </Panel>
      <section class="panel scroll" aria-label="List of machines">
        <table>
          <thead>
            <tr>
              <th>Machine</th>
              <th>Description</th>
              <th>States</th>
            </tr>
          </thead>
          <tbody>
            {all.map((machine) => (
              <tr key={machine.name}>
                <td>
                  <a href={`/machines/${encodeURIComponent(machine.name)}`}>{machine.name}</a>
                </td>
                <td>{machine.doc}</td>
                <td class="chips">
                  {machine.states.map((state) => (
                    <State key={state} machine={machine.name} state={state} />
                  ))}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </section>
    </>
  );
}

export function MachinePage({ name }: { name: string }) {
  const { data, problem } = useLoaded(`machine ${name}`, (signal) =>
    ask(client.GET("/api/machines/{name}", { params: { path: { name } }, signal })),
  );
  const table = data.value;
  if (!table) return <Waiting title={name} problem={problem.value} />;
  return (
    <>
      <Head title={table.machine}>
        {machines.value.get(name)?.recorded !== false && (
          <>
            <a class="button" href={listOf(name)}>
              Records
            </a>
            <a class="button" href={`/journal?kind=${encodeURIComponent(name)}`}>
              Journal
            </a>
          </>
        )}
      </Head>
      <p class="lead">{table.doc}</p>
      <Panel title="Lifecycle">
        <Picture src={pictureOf(name, "", [])} alt={`The lifecycle of a ${name}; the tables below say the same.`} />
      </Panel>
      {sees("GET /api/machines/{name}/standing") && <Standing name={name} />}
      <Panel title="States">
        <div class="scroll">
          <table>
            <thead>
              <tr>
                <th>State</th>
                <th>Meaning</th>
                <th>Acts next</th>
                <th>Deadline</th>
              </tr>
            </thead>
            <tbody>
              {table.states.map((state) => (
                <tr key={state.name}>
                  <td>
                    <State machine={name} state={state.name} />
                  </td>
                  <td>{state.doc}</td>
                  <td>{state.turn ?? ""}</td>
                  <td>{state.within ? `${state.within.event} after ${span(state.within.seconds * 1_000)} since ${state.within.since}` : ""}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      </Panel>
      <Panel title="Transitions">
        <div class="scroll">
          <table>
            <thead>
              <tr>
                <th>Event</th>
                <th>From</th>
                <th>To</th>
                <th>By</th>
                <th>Why</th>
              </tr>
            </thead>
            <tbody>
              {table.transitions.map((row) => (
                <tr key={`${row.event} ${row.from} ${row.to} ${row.choice}`}>
                  <td class="mono">{row.event}</td>
                  <td>
                    <State machine={name} state={row.from} />
                  </td>
                  <td>
                    <State machine={name} state={row.to} />
                  </td>
                  <td>{row.owner}</td>
                  <td>{row.why}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      </Panel>
    </>
  );
}

/** Where the live records are: how many in each state, since when, and for how long. */
function Standing({ name }: { name: string }) {
  const { data, look } = useLoaded(`standing ${name}`, (signal) =>
    ask(client.GET("/api/machines/{name}/standing", { params: { path: { name } }, signal })),
  );
  useNews((entry) => entry.kind === name, look, 2_000);
  const states = data.value?.states ?? [];
  if (!states.length) return null;
  return (
    <Panel title="Where the live ones stand">
      <div class="scroll">
        <table>
          <thead>
            <tr>
              <th>State</th>
              <th class="number">Records</th>
              <th>Oldest</th>
              <th class="number">Stay, median of the oldest</th>
            </tr>
          </thead>
          <tbody>
            {states.map((one) => (
              <tr key={one.state}>
                <td>
                  <a href={`${listOf(name)}?state=${encodeURIComponent(one.state)}`}>
                    <State machine={name} state={one.state} />
                  </a>
                </td>
                <td class="number">
                  {one.number}
                  {one.capped ? "+" : ""}
                </td>
                <td>
                  <When at={one.oldest_at} />{" "}
                  {one.oldest_id && (
                    <a class="mono" href={pageOf(name, one.oldest_id)}>
                      {one.oldest_id}
                    </a>
                  )}
                </td>
                <td class="number">{one.median_stay_s == null ? "–" : span(one.median_stay_s * 1_000)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </Panel>
  );
}
