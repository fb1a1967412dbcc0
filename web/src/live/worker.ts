/**
 * One event stream for the whole browser: a worker that all tabs share.
 *
 * Browsers allow six connections to an HTTP/1.1 server, for all tabs together. With a stream in each tab the
 * seventh would wait for ever. The stream is resumed by its cursor, so nothing is missed or doubled after a
 * sleep, a restart of the server, or a while in which every tab was hidden.
 */
import type { Entry } from "../api/client";
import type { FromWorker, ToWorker } from "./messages";

const RENDERS_A_SECOND = 5;
const MOST_AT_ONCE = 2_000;
const FIRST_PAUSE_MS = 500;
const LONGEST_PAUSE_MS = 15_000;

const scope = self as unknown as { onconnect: (event: MessageEvent) => void };
const visible = new Map<MessagePort, boolean>();
let stream: EventSource | undefined;
let cursor = "";
let streaming = false;
let pending: Entry[] = [];
let gap = false;
let flushing: ReturnType<typeof setTimeout> | undefined;
let again: ReturnType<typeof setTimeout> | undefined;
let pauseMs = FIRST_PAUSE_MS;

scope.onconnect = (event) => {
  const port = event.ports[0];
  if (!port) return;
  visible.set(port, true);
  port.onmessage = (message: MessageEvent<ToWorker>) => heard(port, message.data);
  port.postMessage({ type: "state", streaming } satisfies FromWorker);
  look();
};

function heard(port: MessagePort, message: ToWorker): void {
  if (message.type === "bye") visible.delete(port);
  else if (message.type === "retry") reopen();
  else visible.set(port, message.type === "visible");
  look();
}

/** Keep a stream open exactly while somebody looks. */
function look(): void {
  const watched = [...visible.values()].some(Boolean);
  if (!watched) close();
  else if (!stream && again === undefined) open();
}

function open(): void {
  stream = new EventSource(`/api/events?${new URLSearchParams({ begin: "true", ...(cursor && { after: cursor }) })}`);
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
    close();
    tellState(false);
    again = setTimeout(reopen, pauseMs + Math.random() * pauseMs);
    pauseMs = Math.min(pauseMs * 2, LONGEST_PAUSE_MS);
  };
}

function reopen(): void {
  clearTimeout(again);
  again = undefined;
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
  if (streaming === now) return;
  streaming = now;
  for (const port of visible.keys()) port.postMessage({ type: "state", streaming } satisfies FromWorker);
}
