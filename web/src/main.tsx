/** The dashboard: a frame with the pages in it. */
import { render } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { signedOut, unreachableSince } from "./api/client";
import { drawInTime } from "./lib/drawing";
import { assembling, holdPage } from "./lib/loading";
import { loadMachines } from "./lib/machines";
import { followLinks, match, path } from "./lib/router";
import { checkSession, loadSession, sees, session } from "./lib/session";
import { begin, refusal, streaming, useNews } from "./live/live";
import { PAGES } from "./pages";
import { SignIn } from "./pages/sign_in";
import { useKeys } from "./ui/keys";
import { Palette } from "./ui/palette";
import { Empty } from "./ui/parts";
import { ThemeSwitch } from "./ui/theme";
import { Toasts } from "./ui/toasts";
import "./styles/base.css";

function App() {
  useKeys();
  if (signedOut.value) return <SignIn />;
  return (
    <div class="shell">
      <a class="skip button" href="#content">
        Skip to the content
      </a>
      <Side />
      <main id="content" tabIndex={-1} aria-busy={assembling.value}>
        <Page />
      </main>
      {unreachableSince.value > 0 && (
        <div class="notice bad gone" role="alert">
          The server cannot be reached. This page shows the last known data, and reconnects by itself.
        </div>
      )}
      <Palette />
      <Toasts />
    </div>
  );
}

function Side() {
  // Not every page reads something again; without news, each has to notice that the server or the session is gone.
  useNews(() => false, checkSession);
  const nav = useRef<HTMLElement>(null);
  useEffect(() => {
    const here = nav.current?.querySelector<HTMLElement>("[aria-current]");
    // In a narrow window the pages are a line that scrolls.
    if (nav.current && here) nav.current.scrollLeft = here.offsetLeft - (nav.current.clientWidth - here.offsetWidth) / 2;
  }, [path.value]);
  return (
    <header class="side">
      <a class="brand" href="/">
        <img src="/icon.svg" alt="" width="24" height="24" /> Interlock
      </a>
      <nav ref={nav} aria-label="Pages">
        {PAGES.filter((page) => page.title && (!page.needs || !session.value || sees(page.needs))).map((page) => {
          const root = page.pattern;
          const here = root === "/" ? path.value === "/" : path.value === root || path.value.startsWith(`${root}/`);
          return (
            <a key={root} href={root} aria-current={here ? "page" : undefined}>
              {page.title}
            </a>
          );
        })}
      </nav>
      <div class="foot">
        <span role="status">
          {streaming.value ? "● live" : "○ looking every 3 s"}
          {refusal.value && <small>No live news: {refusal.value}</small>}
        </span>
        <ThemeSwitch />
        <span>
          <kbd>/</kbd> find · <kbd>?</kbd> keys
        </span>
      </div>
    </header>
  );
}

function Page() {
  const at = path.value;
  for (const page of PAGES) {
    const found = match(page.pattern, at);
    if (found) return <Titled title={page.title || page.name || Object.values(found).join(" ")}>{page.show(found)}</Titled>;
  }
  return (
    <Empty>
      There is no page at <code>{at}</code>. <a href="/">Go to the overview.</a>
    </Empty>
  );
}

/** A page with its title. Another page has the focus at its beginning, as if it were loaded anew. */
function Titled({ title, children }: { title: string; children: preact.ComponentChildren }) {
  const opened = useRef(path.value);
  useEffect(() => {
    document.title = `${title} · Interlock`;
  }, [title]);
  useEffect(() => {
    if (opened.current !== path.value) document.getElementById("content")?.focus({ preventScroll: true });
    opened.current = path.value;
  }, [path.value]);
  return <>{children}</>;
}

/** Read the user and the tables; repeated until the server answers. */
async function enter(): Promise<void> {
  const release = holdPage();
  try {
    await Promise.all([loadSession(), loadMachines()]);
  } catch {
    if (!signedOut.value) setTimeout(enter, 2_000);
  } finally {
    release();
  }
}

drawInTime();
followLinks();
begin();
void enter();
const root = document.getElementById("app");
if (root) {
  root.replaceChildren();
  render(<App />, root);
}
