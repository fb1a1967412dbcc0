/**
 * One event stream for the whole browser: a worker that all tabs share.
 *
 * Browsers allow six connections to an HTTP/1.1 server, for all tabs together. With a stream in each tab the
 * seventh would wait for ever. The stream is resumed by its cursor, so nothing is missed or doubled after a
 * sleep, a restart of the server, or a while in which every tab was hidden.
 */
import type { Entry, ProblemBody } from "../api/client";
import type { FromWorker, ToWorker } from "./messages";

const RENDERS_A_SECOND = 5;
const MOST_AT_ONCE = 2_000;
const FIRST_PAUSE_MS = 500;
const LONGEST_PAUSE_MS = 15_000;

const scope = self as unknown as { onconnect: (event: MessageEvent) => void };
const visible = new Map<MessagePort, boolean>();
let stream: EventSource | undefined;
let cursor = "";
/** Undefined until the first stream is there, or has failed: pages read their content after that. */
let streaming: boolean | undefined;
/** Why there is no stream, in the server's words; a request that was refused so is not repeated. */
let refusal = "";
let pending: Entry[] = [];
let gap = false;
let flushing: ReturnType<typeof setTimeout> | undefined;
let again: ReturnType<typeof setTimeout> | undefined;
let pauseMs = FIRST_PAUSE_MS;
let asking: AbortController | undefined;
let told = "";

scope.onconnect = (event) => {
  const port = event.ports[0];
  if (!port) return;
  visible.set(port, true);
  port.onmessage = (message: MessageEvent<ToWorker>) => heard(port, message.data);
  if (streaming !== undefined) tell(port, streaming);
  look();
};

function heard(port: MessagePort, message: ToWorker): void {
  if (message.type === "bye") visible.delete(port);
  else if (message.type === "retry") {
    refusal = "";
    reopen();
  } else visible.set(port, message.type === "visible");
  look();
}

/** Keep a stream open exactly while a page is visible. */
function look(): void {
  const watched = [...visible.values()].some(Boolean);
  if (!watched) close();
  else if (!stream && again === undefined && !asking && !refusal) open();
}

function open(): void {
  const url = `/api/events?${new URLSearchParams({ begin: "true", ...(cursor && { after: cursor }) })}`;
  stream = new EventSource(url);
  stream.onopen = () => {
    pauseMs = FIRST_PAUSE_MS;
    tellState(true);
  };
  stream.addEventListener("begin", (event: MessageEvent<string>) => {
    cursor = event.lastEventId;
  });
  stream.addEventListener("entry", (event: MessageEvent<string>) => {
    cursor = event.lastEventId || cursor;
    pending.push(JSON.parse(event.data) as Entry);
    if (pending.length > MOST_AT_ONCE) {
      pending = [];
      gap = true;
    }
    flush();
  });
  stream.addEventListener("gap", () => {
    gap = true;
    flush();
  });
  // The browser would try again by itself, but not after a refusal, and without a pause that grows.
  stream.onerror = () => {
    const refused = stream?.readyState === EventSource.CLOSED;
    close();
    if (refused) void learnWhy(url);
    else tryLater();
  };
}

function tryLater(): void {
  again = setTimeout(reopen, pauseMs + Math.random() * pauseMs);
  pauseMs = Math.min(pauseMs * 2, LONGEST_PAUSE_MS);
  tellState(false);
}

/** Ask why there is no stream, which the browser does not tell; stop where the answer would be the same again. */
async function learnWhy(url: string): Promise<void> {
  const mine = new AbortController();
  const limit = setTimeout(() => mine.abort(), LONGEST_PAUSE_MS);
  asking = mine;
  let status = 0;
  let said: Partial<ProblemBody> = {};
  try {
    const response = await fetch(url, { signal: mine.signal });
    status = response.status;
    if (!response.ok) said = (await response.json()) as Partial<ProblemBody>;
  } catch {
    // The server is gone, or something in between has answered.
  }
  clearTimeout(limit);
  mine.abort();
  if (asking !== mine) return; // it was tried anew meanwhile, as after signing in
  asking = undefined;
  if (status === 401 || status === 403) {
    refusal = said.error ?? `The server answered ${status}.`;
    tellState(false);
    return;
  }
  if (cursor && (status === 400 || status === 422)) {
    cursor = ""; // it is of another store
    gap = true;
    flush();
  }
  tryLater();
}

function reopen(): void {
  clearTimeout(again);
  asking?.abort();
  again = asking = undefined;
  close();
  look();
}

function close(): void {
  stream?.close();
  stream = undefined;
}

function flush(): void {
  flushing ??= setTimeout(() => {
    flushing = undefined;
    const message: FromWorker = { type: "entries", entries: pending, gap };
    pending = [];
    gap = false;
    for (const port of visible.keys()) port.postMessage(message);
  }, 1_000 / RENDERS_A_SECOND);
}

function tellState(now: boolean): void {
  streaming = now;
  if (told === `${now} ${refusal}`) return;
  told = `${now} ${refusal}`;
  for (const port of visible.keys()) tell(port, now);
}

function tell(port: MessagePort, now: boolean): void {
  port.postMessage({ type: "state", streaming: now, refusal } satisfies FromWorker);
}
