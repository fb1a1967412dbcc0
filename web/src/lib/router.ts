/** Addresses of pages: the path names the page, the query its content. Both can be bookmarked. */
import { signal } from "@preact/signals";

export const path = signal(location.pathname);
export const query = signal(new URLSearchParams(location.search));

/** Go to another address of the dashboard. */
export function go(to: string, { replace = false } = {}): void {
  const url = new URL(to, location.href);
  history[replace ? "replaceState" : "pushState"](null, "", url);
  read();
  if (!replace) window.scrollTo(0, 0);
}

/** Change one parameter of the query; an empty value removes it. */
export function setQuery(name: string, value: string, options?: { replace?: boolean }): void {
  const next = new URLSearchParams(query.value);
  if (value) next.set(name, value);
  else next.delete(name);
  const said = next.toString();
  go(path.value + (said ? `?${said}` : ""), options);
}

function read(): void {
  path.value = location.pathname;
  query.value = new URLSearchParams(location.search);
}

/** Follow links inside the dashboard without loading the page again. */
export function followLinks(): void {
  addEventListener("popstate", read);
  document.addEventListener("click", (event) => {
    if (event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    const link = (event.target as Element).closest?.("a[href]") as HTMLAnchorElement | null;
    if (!link || link.target || link.origin !== location.origin || link.hasAttribute("download")) return;
    if (link.hash && link.pathname + link.search === location.pathname + location.search) return; // a place on this page
    if (link.pathname.startsWith("/api/") || link.pathname === "/docs" || link.pathname === "/metrics") return;
    if (/^\/[^/]*\./.test(link.pathname)) return; // a file: no page has a dot there
    event.preventDefault();
    go(link.href);
  });
}

/** Match an address against a pattern such as `/jobs/:id`; undefined when it is another one. */
export function match(pattern: string, at: string): Record<string, string> | undefined {
  const wanted = pattern.split("/");
  const given = at.replace(/\/+$/, "").split("/");
  if (at === "/" && pattern === "/") return {};
  if (wanted.length !== given.length) return undefined;
  const found: Record<string, string> = {};
  for (const [place, part] of wanted.entries()) {
    const said = given[place] ?? "";
    if (part.startsWith(":")) found[part.slice(1)] = decodeURIComponent(said);
    else if (part !== said) return undefined;
  }
  return found;
}
