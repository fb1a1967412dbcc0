/** Admin: the server and its store, roles and tokens, excluded runners, and receivers of reports. */
import { ask, client, type components, requestId } from "../api/client";
import { useEvery, useLoaded } from "../lib/loading";
import { hasEnded } from "../lib/machines";
import { may, sees, session, signOut } from "../lib/session";
import { span } from "../lib/time";
import { useNews } from "../live/live";
import { Action } from "../ui/action";
import { Empty, Facts, Head, Panel, Refusal, State, When } from "../ui/parts";

export function Admin() {
  const seesAll = sees("GET /api/quarantine");
  const isAdmin = seesAll && may("POST /api/server/sessions/{session_id}/revoke");
  return (
    <>
      <Head title="Admin">
        {session.value?.signed_in && (
          <button type="button" onClick={signOut}>
            Sign out
          </button>
        )}
      </Head>
      <Panel title="You">
        <Facts
          rows={[
            ["name", session.value?.name],
            ["may do what these may", session.value?.roles.join(", ")],
            ["queues", session.value?.queues?.join(", ") || "all"],
          ]}
        />
      </Panel>
      {isAdmin ? <Server /> : <Health />}
      {isAdmin && <StoreStatus />}
      {seesAll && <Quarantine />}
      {isAdmin && <Webhooks />}
      {may("POST /api/tokens") && <Tokens />}
      {isAdmin && <Sessions />}
      <p class="quiet">
        This dashboard contains software of others: <a href="/licenses.txt">licenses</a>.
      </p>
    </>
  );
}

/** The loops alone, for users whose role shows nothing more of the server. */
function Health() {
  const { data, problem } = useLoaded("health", (signal) => ask(client.GET("/readyz", { signal })));
  return (
    <Panel title="Server">
      <Refusal problem={problem.value} />
      {data.value && (
        <>
          <p>It is {data.value.status}.</p>
          <Loops loops={data.value.loops} />
        </>
      )}
    </Panel>
  );
}

function Server() {
  const { data, problem, look } = useLoaded("server", (signal) => ask(client.GET("/api/server", { signal })));
  useEvery(LOOK_EVERY_MS, look);
  const server = data.value;
  return (
    <Panel title="Server">
      <Refusal problem={problem.value} />
      {server && (
        <>
          <Facts
            rows={[
              ["version", `${server.version}, Python ${server.python}`],
              ["started", <When at={server.started_at} />],
              ["memory", server.memory_bytes == null ? "" : bytes(server.memory_bytes)],
              ["connections", `${server.connections} of ${server.max_connections}`],
              ["runners that wait for work", server.waiting_runners],
              ["live streams", server.streams],
              ["tokens", server.tokens_required ? "required" : "not required on this machine"],
              ["journal counted", <When at={server.counted_until} />],
            ]}
          />
          <Loops loops={server.loops} />
        </>
      )}
    </Panel>
  );
}

/** The server sends no events about itself, so it is polled. */
const LOOK_EVERY_MS = 10_000;

interface LoopRow {
  readonly name: string;
  readonly rounds: number;
  readonly failures_in_a_row: number;
  readonly last_success_at?: string | null;
  readonly last_error?: string;
}

function Loops({ loops }: { loops: readonly LoopRow[] }) {
  return (
    <div class="scroll">
      <table>
        <thead>
          <tr>
            <th>Loop</th>
            <th class="number">Rounds</th>
            <th class="number">Failures in a row</th>
            <th>Last success</th>
            <th>Last error</th>
          </tr>
        </thead>
        <tbody>
          {loops.map((loop) => (
            <tr key={loop.name}>
              <td>{loop.name}</td>
              <td class="number">{loop.rounds}</td>
              <td class="number">
                {loop.failures_in_a_row > 0 ? <span class="chip bad">{loop.failures_in_a_row}</span> : 0}
              </td>
              <td>
                <When at={loop.last_success_at} />
              </td>
              <td class="said">{loop.last_error ?? ""}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** Return a size in the unit that people use. */
function bytes(number: number): string {
  const units = ["bytes", "kB", "MB", "GB", "TB"];
  const place = number < 1_000 ? 0 : Math.min(Math.floor(Math.log10(number) / 3), units.length - 1);
  return `${place ? (number / 1_000 ** place).toPrecision(3) : number} ${units[place]}`;
}

function StoreStatus() {
  const { data, problem } = useLoaded("store", (signal) => ask(client.GET("/api/server/store", { signal })));
  const store = data.value;
  return (
    <>
      <Panel title="Store">
        <Refusal problem={problem.value} />
        {store && (
          <Facts
            rows={[
              ["where", <code>{store.url}</code>],
              ["database", store.server],
              ["schema", `version ${store.schema_version} of ${store.wanted_version}`],
              ["size", store.size_bytes == null ? "" : bytes(store.size_bytes)],
              ["durability", store.durability],
              ["shared", store.shared ? "several hosts may use it" : "this host only"],
              ["connections", store.connections ? `${store.connections.all} of ${store.connections.most}` : ""],
              ["journal", `${counted(store.entries, store.cap)} entries`],
              ["oldest entry", <When at={store.oldest_entry_at} />],
            ]}
          />
        )}
      </Panel>
      {store && <Retention kept={store.retention} records={store.records} cap={store.cap} pruned={store.pruned} />}
    </>
  );
}

function counted(number: number, cap: number | null): string {
  return cap != null && number >= cap ? `${number}+` : String(number);
}

interface RetentionProps {
  readonly kept: readonly components["schemas"]["Kept"][];
  readonly records: Readonly<Record<string, Readonly<Record<string, number>>>>;
  readonly cap: number | null;
  readonly pruned: number;
}

/** How long records are kept after they have ended, and how many of them there are. */
function Retention({ kept, records, cap, pruned }: RetentionProps) {
  const endedOf = (one: (typeof kept)[number]) =>
    one.states.reduce((all, state) => all + (records[one.kind]?.[state] ?? 0), 0);
  const liveOf = (one: (typeof kept)[number]) =>
    Object.entries(records[one.kind] ?? {}).reduce((all, [state, number]) => all + (one.states.includes(state) ? 0 : number), 0);
  const shown = kept.filter((one) => records[one.kind]);
  return (
    <Panel title="Retention">
      <p class="quiet">
        Ended records are removed with their journal after this time. The last round has removed {pruned}. Remove
        more with <code>interlock db prune --older-than 7d</code>.
      </p>
      <div class="scroll">
        <table>
          <thead>
            <tr>
              <th>Records</th>
              <th class="number">Live</th>
              <th class="number">Ended</th>
              <th>Kept after the end</th>
            </tr>
          </thead>
          <tbody>
            {shown.map((one) => (
              <tr key={`${one.kind} ${one.queue ?? ""} ${one.states.join(" ")}`}>
                <td>{one.queue ? `${one.kind} of queue ${one.queue}: ${one.states.join(", ")}` : one.kind}</td>
                <td class="number">{one.queue ? "" : counted(liveOf(one), cap)}</td>
                <td class="number">{one.queue ? "" : counted(endedOf(one), cap)}</td>
                <td>{span(one.seconds * 1_000)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {shown.length === 0 && <Empty>There are no records yet.</Empty>}
    </Panel>
  );
}

function Webhooks() {
  const { data, problem, look } = useLoaded("webhooks", (signal) => ask(client.GET("/api/server/webhooks", { signal })));
  useNews((entry) => entry.kind === "report", look, 1_000);
  const hooks = data.value;
  return (
    <Panel title="Webhooks">
      <Refusal problem={problem.value} />
      {hooks && hooks.incoming.length + hooks.receivers.length === 0 && (
        <Empty>
          None are configured. Name them in <code>interlock.toml</code>; try a receiver with{" "}
          <code>interlock webhook test URL</code>.
        </Empty>
      )}
      {hooks && hooks.incoming.length + hooks.receivers.length > 0 && (
        <div class="scroll">
          <table>
            <thead>
              <tr>
                <th>Name</th>
                <th>Effect</th>
                <th>Address</th>
                <th>Secret</th>
              </tr>
            </thead>
            <tbody>
              {hooks.incoming.map((one) => (
                <tr key={one.path}>
                  <td>{one.name}</td>
                  <td>starts runs</td>
                  <td class="mono">{one.path}</td>
                  <td>{one.keys ? "there" : <span class="chip bad">missing</span>}</td>
                </tr>
              ))}
              {hooks.receivers.map((one) => (
                <tr key={one.name}>
                  <td>{one.name}</td>
                  <td>receives notifications of runs{one.words?.length ? `: ${one.words.join(", ")}` : ""}</td>
                  <td class="mono">{one.to}</td>
                  <td>{one.able ? "there" : <span class="chip bad">missing</span>}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {hooks && hooks.failing.length > 0 && <Failing reports={hooks.failing} look={look} />}
    </Panel>
  );
}

function Failing({ reports, look }: { reports: readonly components["schemas"]["FailedReport"][]; look: () => void }) {
  return (
    <>
      <h3>Deliveries that fail</h3>
      <div class="scroll">
        <table>
          <thead>
            <tr>
              <th>Run</th>
              <th>Receiver</th>
              <th>State</th>
              <th class="number">Tries</th>
              <th>Next try</th>
              <th>Last error</th>
              <th>
                <span class="hidden-text">Action</span>
              </th>
            </tr>
          </thead>
          <tbody>
            {reports.map((one) => (
              <tr key={`${one.run_id} ${one.reporter}`}>
                <td>
                  <a class="mono" href={`/runs/${encodeURIComponent(one.run_id)}`}>
                    {one.run_id}
                  </a>
                </td>
                <td>{one.reporter}</td>
                <td>
                  <State machine="report" state={one.state} />
                </td>
                <td class="number">{one.tries ?? 0}</td>
                <td>
                  <When at={one.next_try_at} />
                </td>
                <td class="said">{one.last_error}</td>
                <td>
                  {hasEnded("report", one.state) && (
                    <Action
                      request="POST /api/runs/{run_id}/reports/again"
                      done="The report is sent again."
                      run={() => ask(client.POST("/api/runs/{run_id}/reports/again", { params: { path: { run_id: one.run_id } } }))}
                      then={look}
                    >
                      Tell again
                    </Action>
                  )}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </>
  );
}

function Sessions() {
  const { data, problem, look } = useLoaded("sessions", (signal) => ask(client.GET("/api/server/sessions", { signal })));
  useNews((entry) => entry.kind === "session", look);
  const sessions = data.value?.sessions ?? [];
  return (
    <Panel title="Browsers that are signed in">
      <Refusal problem={problem.value} />
      {data.value && sessions.length === 0 && <Empty>None.</Empty>}
      {sessions.length > 0 && (
        <div class="scroll">
          <table>
            <thead>
              <tr>
                <th>Token</th>
                <th>Signed in</th>
                <th>Expires</th>
                <th>
                  <span class="hidden-text">Action</span>
                </th>
              </tr>
            </thead>
            <tbody>
              {sessions.map((one) => (
                <tr key={one.id}>
                  <td>
                    {one.name} {one.id === data.value?.own && <span class="quiet">(this browser)</span>}
                  </td>
                  <td>
                    <When at={one.created_at} />
                  </td>
                  <td>
                    <When at={one.expires_at} />
                  </td>
                  <td>
                    <Action
                      request="POST /api/server/sessions/{session_id}/revoke"
                      legal={["session", one.state, "revoke"]}
                      done={`A browser of ${one.name} was signed out.`}
                      ask={`Sign this browser of ${one.name} out? Its token stays good.`}
                      danger
                      run={() =>
                        ask(
                          client.POST("/api/server/sessions/{session_id}/revoke", {
                            params: { path: { session_id: one.id } },
                            body: {},
                          }),
                        )
                      }
                      then={look}
                    >
                      Sign out
                    </Action>
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </Panel>
  );
}

function Quarantine() {
  const { data, problem, look } = useLoaded("quarantine", (signal) => ask(client.GET("/api/quarantine", { signal })));
  useNews((entry) => entry.kind === "standing", look);
  const runners = data.value?.runners ?? [];
  return (
    <Panel title="Quarantine">
      <Refusal problem={problem.value} />
      {data.value && runners.length === 0 && <Empty>No runner is shut out.</Empty>}
      {runners.length > 0 && (
        <div class="scroll">
          <table>
            <thead>
              <tr>
                <th>Runner</th>
                <th>State</th>
                <th>Until</th>
                <th>Why</th>
                <th>
                  <span class="hidden-text">Action</span>
                </th>
              </tr>
            </thead>
            <tbody>
              {runners.map((one) => (
                <tr key={one.runner}>
                  <td class="mono">{one.runner}</td>
                  <td>
                    <State machine="standing" state={one.state} />
                  </td>
                  <td>
                    <When at={one.until} />
                  </td>
                  <td>{one.explanation}</td>
                  <td>
                    <Action
                      request="POST /api/quarantine/lift"
                      done={`${one.runner} may take work again.`}
                      run={() =>
                        ask(client.POST("/api/quarantine/lift", { body: { runner: one.runner, request_id: requestId() } }))
                      }
                      then={look}
                    >
                      Lift
                    </Action>
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </Panel>
  );
}

function Tokens() {
  const { data, problem, look } = useLoaded("tokens", (signal) => ask(client.GET("/api/tokens", { signal })));
  useNews((entry) => entry.kind === "token", look);
  const tokens = data.value?.tokens ?? [];
  return (
    <Panel title="Tokens">
      <Refusal problem={problem.value} />
      {data.value && tokens.length === 0 && (
        <Empty>
          No tokens: every user of this machine has access. Create one with <code>interlock token create NAME --role admin</code>.
        </Empty>
      )}
      {tokens.length > 0 && (
        <div class="scroll">
          <table>
            <thead>
              <tr>
                <th>Name</th>
                <th>Role</th>
                <th>State</th>
                <th>Queues</th>
                <th>Expires</th>
                <th>Last used</th>
                <th>
                  <span class="hidden-text">Action</span>
                </th>
              </tr>
            </thead>
            <tbody>
              {tokens.map((token) => (
                <tr key={token.id}>
                  <td>{token.name}</td>
                  <td>{token.role}</td>
                  <td>
                    <State machine="token" state={token.state} />
                  </td>
                  <td>{token.queues?.join(", ") || "all"}</td>
                  <td>
                    <When at={token.expires_at} />
                  </td>
                  <td>
                    <When at={token.used_at} />
                  </td>
                  <td>
                    <Action
                      request="POST /api/tokens/{token_name}/revoke"
                      done={`The token ${token.name} was revoked.`}
                      ask={`Revoke the token ${token.name}? Its requests are refused from then on.`}
                      danger
                      run={() =>
                        ask(
                          client.POST("/api/tokens/{token_name}/revoke", {
                            params: { path: { token_name: token.id } },
                            body: { request_id: requestId() },
                          }),
                        )
                      }
                      then={look}
                    >
                      Revoke
                    </Action>
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </Panel>
  );
}
