/** Which page is where. Those with a title are in the side bar. */
import type { ComponentChildren } from "preact";
import { JobPage } from "./job";
import { Jobs } from "./jobs";
import { Journal } from "./journal";
import { MachinePage, Machines } from "./machines";
import { Overview } from "./overview";
import { Queues } from "./queues";
import { WorkerPage, Workers } from "./workers";

interface Page {
  readonly pattern: string;
  readonly title: string;
  readonly show: (at: Record<string, string>) => ComponentChildren;
}

export const PAGES: readonly Page[] = [
  { pattern: "/", title: "Overview", show: () => <Overview /> },
  { pattern: "/jobs", title: "Jobs", show: () => <Jobs /> },
  { pattern: "/jobs/:id", title: "", show: (at) => <JobPage key={at["id"]} id={at["id"] ?? ""} /> },
  { pattern: "/queues", title: "Queues", show: () => <Queues /> },
  { pattern: "/workers", title: "Workers", show: () => <Workers /> },
  { pattern: "/workers/:id", title: "", show: (at) => <WorkerPage key={at["id"]} id={at["id"] ?? ""} /> },
  { pattern: "/machines", title: "Machines", show: () => <Machines /> },
  { pattern: "/machines/:name", title: "", show: (at) => <MachinePage key={at["name"]} name={at["name"] ?? ""} /> },
  { pattern: "/journal", title: "Journal", show: () => <Journal /> },
];
