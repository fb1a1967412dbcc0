/** Several simulations beside each other: which parameters differ, where they ended, and one metric of all. */
import { ask, client } from "../api/client";
import { aligned, differencesOf } from "../lib/differences";
import { useEvery, useLoaded } from "../lib/loading";
import { meaningOf } from "../lib/machines";
import { query, setQuery } from "../lib/router";
import { Chart, SERIES } from "../ui/chart";
import { Empty, Head, Panel, Refusal, State, Took, Waiting } from "../ui/parts";
import { figure, STEPS } from "./simulations";

const LOOK_EVERY_MS = 2_000;

export function SimulationCompare() {
  const ids = [...new Set(query.value.getAll("id"))].slice(0, SERIES.length);
  const { data, problem, look } = useLoaded(`compare ${ids.join()}`, (signal) =>
    Promise.all(
      ids.map(async (id) => {
        const at = { params: { path: { run_id: id } }, signal };
        const [one, metrics] = await Promise.all([
          ask(client.GET("/api/simulations/{run_id}", at)),
          ask(client.GET("/api/simulations/{run_id}/metrics", at)),
        ]);
        return { one, metrics };
      }),
    ),
  );
  const shown = data.value;
  useEvery(shown?.some(({ one }) => meaningOf("simulation", one.status) === "active") ? LOOK_EVERY_MS : 0, look);
  if (!shown) return <Waiting title="Compare simulations" problem={problem.value} />;
  if (shown.length < 2) {
    return (
      <>
        <Head title="Compare simulations" />
        <Empty>Choose two to {SERIES.length} simulations in their list.</Empty>
        <a class="button" href="/simulations">
          List of simulations
        </a>
      </>
    );
  }
  const names = [...new Set(shown.flatMap(({ metrics }) => Object.keys(metrics.series ?? {})))];
  const metric = names.find((name) => name === query.value.get("metric")) ?? names[0];
  const { rows, same } = differencesOf(shown.map(({ one }) => one.input));
  return (
    <>
      <Head title="Compare simulations">
        {metric && (
          <label>
            Metric{" "}
            <select value={metric} onChange={(event) => setQuery("metric", event.currentTarget.value, { replace: true })}>
              {names.map((name) => (
                <option key={name} value={name}>
                  {name}
                </option>
              ))}
            </select>
          </label>
        )}
      </Head>
      <Refusal problem={problem.value} />
      {metric ? <Overlay metric={metric} all={shown} /> : <Empty>None of them has recorded metrics with sim.metrics().</Empty>}
      <Panel title="Side by side">
        <div class="scroll">
          <table>
            <thead>
              <tr>
                <th>What</th>
                {shown.map(({ one }, place) => (
                  <th key={one.run_id}>
                    <span class={`chip-of ${SERIES[place]}`} />
                    <a class="mono" href={`/simulations/${encodeURIComponent(one.run_id)}`}>
                      {one.run_id}
                    </a>
                  </th>
                ))}
              </tr>
            </thead>
            <tbody>
              {rows.map(({ name, values }) => (
                <tr key={`parameter ${name}`}>
                  <td class="mono">{name}</td>
                  {values.map((value, place) => (
                    <td key={place} class="mono">
                      {value ?? <span class="quiet">–</span>}
                    </td>
                  ))}
                </tr>
              ))}
              {names.map((name) => (
                <tr key={`metric ${name}`}>
                  <td>{name}, last</td>
                  {shown.map(({ one, metrics }) => (
                    <td key={one.run_id}>{figure(metrics.series?.[name]?.findLast((value) => value !== null))}</td>
                  ))}
                </tr>
              ))}
              <tr>
                <td>state</td>
                {shown.map(({ one }) => (
                  <td key={one.run_id}>
                    <State machine="simulation" state={one.status} />
                  </td>
                ))}
              </tr>
              <tr>
                <td>steps</td>
                {shown.map(({ one }) => (
                  <td key={one.run_id}>
                    {(one.current_step ?? 0).toLocaleString()}
                    {one.total_steps ? ` of ${one.total_steps.toLocaleString()}` : ""}
                  </td>
                ))}
              </tr>
              <tr>
                <td>took</td>
                {shown.map(({ one }) => (
                  <td key={one.run_id}>
                    <Took from={one.started_at} to={one.completed_at} />
                  </td>
                ))}
              </tr>
            </tbody>
          </table>
        </div>
        <p class="quiet">
          {rows.length ? "" : "No parameter differs. "}
          {same > 0 && `${same} ${same === 1 ? "parameter is" : "parameters are"} the same in all of them.`}
        </p>
      </Panel>
    </>
  );
}

type One = { one: { run_id: string }; metrics: { steps?: number[]; series?: { [name: string]: (number | null)[] } } };

function Overlay({ metric, all }: { metric: string; all: readonly One[] }) {
  const { at, values } = aligned(all.map(({ metrics }) => ({ at: metrics.steps ?? [], values: metrics.series?.[metric] ?? [] })));
  return (
    <Chart
      title={metric}
      times={at}
      along={STEPS}
      unit={figure}
      lines={all.map(({ one }, place) => ({
        name: one.run_id,
        colour: SERIES[place] ?? "active",
        values: values[place] ?? [],
        joined: true,
      }))}
    />
  );
}
