/** News for pages, by the stream that all tabs share or, without it, by polling. */
import { signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import type { Entry } from "../api/client";
import type { FromWorker, ToWorker } from "./messages";
import workerUrl from "./worker.ts?sharedworker&url";

const LOOK_EVERY_MS = 3_000;
const RENDER_EVERY_MS = 250;

/** A page that is opened waits so long for the stream, then reads without it. */
const WAIT_MS = 1_000;

/** Whether news arrives by itself. */
export const streaming = signal(false);
/** Why it never will, in the server's words. */
export const refusal = signal("");

type Hears = (entries: readonly Entry[], gap: boolean) => void;
const listeners = new Set<Hears>();
let port: MessagePort | undefined;
let known = false;
let settle = (): void => {};
const settled = new Promise<void>((resolve) => {
  settle = () => {
    known = true;
    resolve();
  };
});

/**
 * Call `read` when it is known whether there is a stream: at once, or a moment after the dashboard was opened.
 *
 * A page that is read before the stream has begun may be out of date by then, so it would have to be read again.
 */
export function onceKnown(read: () => void): void {
  if (known) read();
  else void settled.then(read);
}

/** Begin to listen. Without shared workers pages look every few seconds. */
export function begin(): void {
  if ("SharedWorker" in window) {
    port = new SharedWorker(trusted(workerUrl), { type: "module", name: "interlock" }).port;
    port.onmessage = (event: MessageEvent<FromWorker>) => heard(event.data);
    addEventListener("pagehide", () => say({ type: "bye" }));
    document.addEventListener("visibilitychange", () => say({ type: document.hidden ? "hidden" : "visible" }));
    addEventListener("online", () => say({ type: "retry" }));
    setTimeout(settle, WAIT_MS);
  } else settle();
  setInterval(() => {
    if (known && !streaming.value && !document.hidden) for (const each of listeners) each([], true);
  }, LOOK_EVERY_MS);
}

/** The only script that the page starts by itself: the server's policy lets it through under this name alone. */
function trusted(url: string): string {
  const types = (window as { trustedTypes?: TrustedTypes }).trustedTypes;
  if (!types) return url;
  return types.createPolicy("interlock", { createScriptURL: (own) => own }).createScriptURL(url) as unknown as string;
}

interface TrustedTypes {
  createPolicy(
    name: string,
    rules: { createScriptURL: (url: string) => string },
  ): { createScriptURL: (url: string) => object };
}

/** Open the stream anew, as after signing in. */
export function retry(): void {
  say({ type: "retry" });
}

function say(message: ToWorker): void {
  port?.postMessage(message);
}

function heard(message: FromWorker): void {
  if (message.type === "state") {
    // What happened while there was no stream is not known here; pages that have read nothing yet do so now.
    const missed = known && message.streaming && !streaming.value;
    streaming.value = message.streaming;
    refusal.value = message.refusal;
    if (missed) for (const each of listeners) each([], true);
    settle();
    return;
  }
  for (const each of listeners) each(message.entries, message.gap);
}

/** Call `look` when something has happened that `concerns` the page, at most a few times a second. */
export function useNews(concerns: (entry: Entry) => boolean, look: () => void, everyMs = RENDER_EVERY_MS): void {
  const latest = useRef({ concerns, look });
  latest.current = { concerns, look };
  useEffect(() => {
    let waiting: ReturnType<typeof setTimeout> | undefined;
    let missed = false;
    const soon = (): void => {
      if (document.hidden) {
        missed = true;
        return;
      }
      waiting ??= setTimeout(() => {
        waiting = undefined;
        latest.current.look();
      }, everyMs);
    };
    const hears: Hears = (entries, gap) => {
      if (gap || entries.some((entry) => latest.current.concerns(entry))) soon();
    };
    const shown = (): void => {
      if (!document.hidden && missed) {
        missed = false;
        soon();
      }
    };
    listeners.add(hears);
    document.addEventListener("visibilitychange", shown);
    return () => {
      clearTimeout(waiting);
      listeners.delete(hears);
      document.removeEventListener("visibilitychange", shown);
    };
  }, []);
}

/** Call `hear` with everything that happens while the page is open. */
export function useEntries(hear: (entries: readonly Entry[]) => void): void {
  const latest = useRef(hear);
  latest.current = hear;
  useEffect(() => {
    const hears: Hears = (entries) => {
      if (entries.length) latest.current(entries);
    };
    listeners.add(hears);
    return () => {
      listeners.delete(hears);
    };
  }, []);
}
