/** Start a workload: a form from the schema of its kind, checked by the server before anything begins. */
import { type Signal, useSignal } from "@preact/signals";
import { ask, client, type components, Problem, requestId } from "../api/client";
import { useLoaded } from "../lib/loading";
import { go } from "../lib/router";
import { fieldsOf, NotAValue, objectOf, type Field } from "../lib/schema";
import { may } from "../lib/session";
import { CopyAs } from "../ui/copy";
import { Fields, Labelled } from "../ui/form";
import { Empty, Head, Json, Panel, Refusal, Waiting } from "../ui/parts";

type Kinds = components["schemas"]["WorkloadKinds"];
type Spec = components["schemas"]["WorkloadSpec"];

const OTHER = "another kind";
/** Fields that every workload has; what else there is has a good default. */
const FIRST = ["name", "agents", "duration_s", "rate", "concurrency", "thresholds"];

export function WorkloadStart() {
  const { data, problem } = useLoaded("workload kinds", (signal) => ask(client.GET("/api/workload-kinds", { signal })));
  if (!data.value) return <Waiting title="Start a workload" problem={problem.value} />;
  return (
    <>
      <Head title="Start a workload" />
      {may("POST /api/workload-jobs") ? <Form known={data.value} /> : <Empty>Your token does not let you start workloads.</Empty>}
    </>
  );
}

function Form({ known }: { known: Kinds }) {
  const kind = useSignal(known.kinds.find((each) => each.kind === "http")?.kind ?? known.kinds[0]?.kind ?? OTHER);
  const otherKind = useSignal("");
  const given = useSignal<Readonly<Record<string, string>>>({});
  const options = useSignal<Readonly<Record<string, string>>>({});
  const queue = useSignal(known.queue);
  const problem = useSignal<Problem | undefined>(undefined);
  const file = useSignal("");
  const busy = useSignal(false);
  const chosen = known.kinds.find((each) => each.kind === kind.value);
  const givenFields: readonly Field[] = chosen
    ? fieldsOf(chosen.json_schema)
    : [{ name: "with", kind: "json", required: false, initial: "", about: "Input of the agents' plugin, as JSON.", choices: [] }];
  const optionFields = fieldsOf(known.options, ["kind", "spec"]);
  const first = FIRST.flatMap((name) => optionFields.filter((field) => field.name === name));
  const rest = optionFields.filter((field) => !FIRST.includes(field.name));

  function specOf(): Spec {
    const made = objectOf(givenFields, given.value);
    const spec = chosen ? made : ((made["with"] ?? {}) as Record<string, unknown>);
    return { ...objectOf(optionFields, options.value), kind: chosen ? kind.value : otherKind.value.trim(), spec } as Spec;
  }

  async function send(checkOnly: boolean): Promise<void> {
    busy.value = true;
    problem.value = undefined;
    file.value = "";
    try {
      const body = { workload: specOf(), queue: queue.value, check_only: checkOnly, ...(checkOnly ? {} : { request_id: requestId() }) };
      const made = await ask(client.POST("/api/workload-jobs", { body }));
      if (made.id) go(`/workloads/${encodeURIComponent(made.id)}`);
      else file.value = made.file ?? "";
    } catch (error) {
      problem.value = error instanceof Problem ? error : new Problem("invalid", error instanceof NotAValue ? error.message : String(error));
    } finally {
      busy.value = false;
    }
  }

  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        void send(false);
      }}
    >
      <Panel title="Work of the agents">
        <div class="form">
          <Labelled name="kind" about={chosen?.about ?? "A plugin that only the agents know; they check its settings."}>
            {(id) => (
              <select
                id={id}
                value={kind.value}
                onChange={(event) => {
                  kind.value = event.currentTarget.value;
                  given.value = {};
                }}
              >
                {known.kinds.map((each) => (
                  <option key={each.kind} value={each.kind}>
                    {each.kind}
                  </option>
                ))}
                <option value={OTHER}>{OTHER}</option>
              </select>
            )}
          </Labelled>
          {!chosen && <Text name="name of the kind" text={otherKind} />}
        </div>
        <h3 class="apart">Given to it</h3>
        <Fields key={kind.value} fields={givenFields} texts={given} />
      </Panel>
      <Panel title="How much, and on which agents">
        <Fields fields={first} texts={options} />
        <details>
          <summary>More</summary>
          <Fields fields={rest} texts={options} />
        </details>
      </Panel>
      <Panel title="Who drives it">
        <p>
          A worker that runs <code>interlock worker start interlock.workloads --queue {queue.value}</code> drives it. Without one it
          waits. <b>Check</b> starts nothing and makes the same as a file, to be driven from a terminal.
        </p>
        <div class="form">
          <Text name="queue" text={queue} />
        </div>
      </Panel>
      <Refusal problem={problem.value} />
      <div class="head">
        <button type="submit" class="primary" disabled={busy.value}>
          Start
        </button>
        <button type="button" disabled={busy.value} onClick={() => void send(true)}>
          Check
        </button>
      </div>
      {file.value && (
        <>
          <Panel title="load.yml">
            <Json value={file.value} />
          </Panel>
          <CopyAs
            ways={[
              ["the file", file.value],
              ["a terminal", "interlock workload run load.yml --out results"],
            ]}
          />
        </>
      )}
    </form>
  );
}

function Text({ name, text }: { name: string; text: Signal<string> }) {
  return (
    <Labelled name={name}>
      {(id) => (
        <input
          id={id}
          required
          value={text.value}
          onInput={(event) => {
            text.value = event.currentTarget.value;
          }}
        />
      )}
    </Labelled>
  );
}
