/** Admin: who may do what, which runners are shut out, and how the server is. */
import { ask, client, requestId } from "../api/client";
import { useLoaded } from "../lib/loading";
import { may, session, signOut } from "../lib/session";
import { useNews } from "../live/live";
import { Action } from "../ui/action";
import { Empty, Facts, Head, Panel, Refusal, State, When } from "../ui/parts";

export function Admin() {
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
      <Health />
      <Quarantine />
      {may("POST /api/tokens") && <Tokens />}
    </>
  );
}

function Health() {
  const { data, problem } = useLoaded("health", (signal) => ask(client.GET("/readyz", { signal })));
  return (
    <Panel title="Server">
      <Refusal problem={problem.value} />
      {data.value && (
        <>
          <p>It is {data.value.status}.</p>
          <div class="scroll">
            <table>
              <thead>
                <tr>
                  <th>Loop</th>
                  <th class="number">Rounds</th>
                  <th class="number">Failures in a row</th>
                  <th>Last success</th>
                </tr>
              </thead>
              <tbody>
                {data.value.loops.map((loop) => (
                  <tr key={loop.name}>
                    <td>{loop.name}</td>
                    <td class="number">{loop.rounds}</td>
                    <td class="number">{loop.failures_in_a_row}</td>
                    <td>
                      <When at={loop.last_success_at} />
                    </td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        </>
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
          No tokens: everybody on this machine is let in. Create one with <code>interlock token create NAME --role admin</code>.
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
                      ask={`Revoke the token ${token.name}? Whatever uses it is refused from then on.`}
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
