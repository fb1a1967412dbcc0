/** Two workloads beside each other: the curves of their histograms, and every percentile with the difference. */
import { ask, client, type components } from "../api/client";
import { useLoaded } from "../lib/loading";
import { query } from "../lib/router";
import { precise } from "../lib/time";
import { Chart } from "../ui/chart";
import { Empty, Head, Panel, Refusal, Waiting } from "../ui/parts";
import { duration } from "./workloads";

type Curve = components["schemas"]["WorkloadPercentiles"];
type Workload = components["schemas"]["WorkloadJob"];

const NINES = {
  name: "percentile",
  show: (nines: number) => `${Number((100 * (1 - 10 ** -nines)).toPrecision(Math.max(2, Math.ceil(nines) + 2)))} %`,
  marks: [0, Math.log10(2), Math.log10(4), 1, Math.log10(20), 2, 3, 4, 5, 6],
};
const ROWS: readonly (readonly [string, keyof Curve["latencies"]])[] = [
  ["mean", "mean_ms"],
  ["p50", "p50_ms"],
  ["p90", "p90_ms"],
  ["p99", "p99_ms"],
  ["p99.9", "p999_ms"],
  ["max", "max_ms"],
];

export function WorkloadCompare() {
  const ids = query.value.getAll("id").slice(0, 2);
  const { data, problem } = useLoaded(`compare ${ids.join()}`, async (signal) => {
    const [list, ...found] = await Promise.all([
      ask(client.GET("/api/workload-jobs", { params: { query: { limit: 100 } }, signal })),
      ...ids.map(async (id) => {
        const at = { params: { path: { job_id: id } }, signal };
        const [curve, view] = await Promise.all([
          ask(client.GET("/api/workload-jobs/{job_id}/percentiles", at)),
          ask(client.GET("/api/workload-jobs/{job_id}", at)),
        ]);
        return { curve, job: view.job };
      }),
    ]);
    return { list: list.workloads.filter((one) => one.verdict), found };
  });
  const shown = data.value;
  if (!shown) return <Waiting title="Compare workloads" problem={problem.value} />;
  const [one, other] = shown.found;
  return (
    <>
      <Head title="Compare workloads">
        <Choice name="Before" place={0} ids={ids} all={shown.list} />
        <Choice name="After" place={1} ids={ids} all={shown.list} />
      </Head>
      <Refusal problem={problem.value} />
      {one && other ? (
        <>
          <Curves one={one.curve} other={other.curve} />
          <Percentiles one={one} other={other} />
        </>
      ) : (
        <Empty>{shown.list.length < 2 ? "Two workloads that are over are needed." : "Choose two workloads that are over."}</Empty>
      )}
    </>
  );
}

function Choice({ name, place, ids, all }: { name: string; place: number; ids: readonly string[]; all: readonly Workload[] }) {
  const chosen = ids[place] ?? "";
  const known = all.some((one) => one.id === chosen);
  function choose(id: string): void {
    const next = place === 0 ? [id, ids[1] ?? ""] : [ids[0] ?? id, id];
    const said = new URLSearchParams(next.filter(Boolean).map((each) => ["id", each]));
    history.replaceState(null, "", `?${said}`);
    query.value = said;
  }
  return (
    <label>
      {name}{" "}
      <select value={chosen} onChange={(event) => choose(event.currentTarget.value)}>
        {!chosen && <option value="">Choose …</option>}
        {chosen && !known && <option value={chosen}>{chosen}</option>}
        {all.map((one) => (
          <option key={one.id} value={one.id}>
            {one.name} {one.id}
          </option>
        ))}
      </select>
    </label>
  );
}

function Curves({ one, other }: { one: Curve; other: Curve }) {
  const points = [one, other].map((curve) => curve.points ?? []);
  const longest = points.reduce((most, each) => (each.length > most.length ? each : most), []);
  const labels = one.name === other.name ? [`${one.name} before`, `${other.name} after`] : [one.name, other.name];
  return (
    <Chart
      title="Latency by percentile"
      times={longest.map((point) => point.nines)}
      along={NINES}
      unit={duration}
      lines={points.map((each, place) => ({
        name: labels[place] ?? "",
        colour: place ? "series-2" : "series-1",
        values: longest.map((_, index) => each[index]?.ms ?? null),
      }))}
    />
  );
}

interface Side {
  readonly curve: Curve;
  readonly job: Workload;
}

function Percentiles({ one, other }: { one: Side; other: Side }) {
  return (
    <Panel title="Side by side">
      <div class="scroll">
        <table>
          <thead>
            <tr>
              <th>Number</th>
              {[one, other].map((side, place) => (
                <th key={place} class="number">
                  <span class={`chip-of series-${place + 1}`} />
                  <a href={`/workloads/${encodeURIComponent(side.job.id)}`}>{side.job.name || side.job.id}</a>
                </th>
              ))}
              <th class="number">Difference</th>
            </tr>
          </thead>
          <tbody>
            {ROWS.map(([name, key]) => {
              const [before, after] = [one.curve.latencies[key], other.curve.latencies[key]];
              return <Row key={name} name={name} before={before} after={after} show={precise} lessIsBetter />;
            })}
            <Row name="operations per second" before={one.job.rate} after={other.job.rate} show={rounded} />
            <Row name="operations" before={one.job.operations} after={other.job.operations} show={rounded} />
            <Row name="errors" before={one.job.errors} after={other.job.errors} show={rounded} lessIsBetter />
          </tbody>
        </table>
      </div>
    </Panel>
  );
}

const rounded = (value: number) => Math.round(value).toLocaleString();

interface RowProps {
  readonly name: string;
  readonly before: number | null | undefined;
  readonly after: number | null | undefined;
  readonly show: (value: number) => string;
  readonly lessIsBetter?: boolean;
}

function Row({ name, before, after, show, lessIsBetter = false }: RowProps) {
  const known = before != null && after != null;
  const by = known ? after - before : 0;
  const share = known && before > 0 ? ` (${by < 0 ? "−" : "+"}${Math.abs(Math.round((100 * by) / before))} %)` : "";
  const better = lessIsBetter ? by < 0 : by > 0;
  // Less than a twentieth is noise, and has no colour.
  const told = known && before > 0 && Math.abs(by) / before >= 0.05;
  return (
    <tr>
      <td>{name}</td>
      <td class="number nowrap">{before == null ? "–" : show(before)}</td>
      <td class="number nowrap">{after == null ? "–" : show(after)}</td>
      <td class="number nowrap">
        {known && (
          <span class={told ? `chip ${better ? "good" : "bad"}` : ""}>
            {by === 0 ? "none" : `${by < 0 ? "−" : "+"}${show(Math.abs(by))}${share}`}
          </span>
        )}
      </td>
    </tr>
  );
}
