/** Which page is where. Those with a title are in the side bar. */
import type { ComponentChildren } from "preact";
import type { Everything } from "../lib/session";
import { Admin } from "./admin";
import { ApprovalPage, Approvals } from "./approvals";
import { Batches, BatchPage } from "./batches";
import { DeadLetterPage, DeadLetters } from "./dead_letters";
import { JobPage } from "./job";
import { Jobs } from "./jobs";
import { Journal } from "./journal";
import { LimitPage, Limits } from "./limits";
import { MachinePage, Machines } from "./machines";
import { Overview } from "./overview";
import { QueuePage, Queues } from "./queues";
import { RecordPage, Records } from "./records";
import { RunPage } from "./run";
import { Runs } from "./runs";
import { SchedulePage, Schedules } from "./schedules";
import { SimulationCompare } from "./simulation_compare";
import { SimulationPage, Simulations } from "./simulations";
import { WorkerPage, Workers } from "./workers";
import { AgentPage, WorkloadPage, Workloads } from "./workloads";
import { WorkloadCompare } from "./workload_compare";
import { WorkloadStart } from "./workload_start";

interface Page {
  readonly pattern: string;
  readonly title: string;
  /** The page is about all queues: the side bar does not lead there with a token that is confined to some. */
  readonly needs?: Everything;
  /** The title of the window, for a page that is not in the side bar. */
  readonly name?: string;
  readonly show: (at: Record<string, string>) => ComponentChildren;
}

export const PAGES: readonly Page[] = [
  { pattern: "/", title: "Overview", show: () => <Overview /> },
  { pattern: "/jobs", title: "Jobs", show: () => <Jobs /> },
  { pattern: "/jobs/:id", title: "", show: (at) => <JobPage key={at["id"]} id={at["id"] ?? ""} /> },
  { pattern: "/batches", title: "Batches", needs: "GET /api/batches", show: () => <Batches /> },
  { pattern: "/batches/:id", title: "", show: (at) => <BatchPage key={at["id"]} id={at["id"] ?? ""} /> },
  { pattern: "/approvals", title: "Approvals", show: () => <Approvals /> },
  { pattern: "/approvals/:id", title: "", show: (at) => <ApprovalPage key={at["id"]} id={at["id"] ?? ""} /> },
  { pattern: "/dead-letters", title: "Dead letters", show: () => <DeadLetters /> },
  { pattern: "/dead-letters/:id", title: "", show: (at) => <DeadLetterPage key={at["id"]} id={at["id"] ?? ""} /> },
  { pattern: "/schedules", title: "Schedules", show: () => <Schedules /> },
  { pattern: "/schedules/:name", title: "", show: (at) => <SchedulePage key={at["name"]} name={at["name"] ?? ""} /> },
  { pattern: "/queues", title: "Queues", show: () => <Queues /> },
  { pattern: "/queues/:name", title: "", show: (at) => <QueuePage key={at["name"]} name={at["name"] ?? ""} /> },
  { pattern: "/limits", title: "Limits", needs: "GET /api/limits", show: () => <Limits /> },
  { pattern: "/limits/:name", title: "", show: (at) => <LimitPage key={at["name"]} name={at["name"] ?? ""} /> },
  { pattern: "/workers", title: "Workers", needs: "GET /api/workers", show: () => <Workers /> },
  { pattern: "/workers/:id", title: "", show: (at) => <WorkerPage key={at["id"]} id={at["id"] ?? ""} /> },
  { pattern: "/runs", title: "Runs", needs: "GET /api/runs", show: () => <Runs /> },
  { pattern: "/runs/:id", title: "", show: (at) => <RunPage key={at["id"]} id={at["id"] ?? ""} /> },
  { pattern: "/simulations", title: "Simulations", needs: "GET /api/simulations", show: () => <Simulations /> },
  { pattern: "/simulations/compare", title: "", name: "Compare simulations", show: () => <SimulationCompare /> },
  { pattern: "/simulations/:id", title: "", show: (at) => <SimulationPage key={at["id"]} id={at["id"] ?? ""} /> },
  { pattern: "/workloads", title: "Workloads", needs: "GET /api/workloads", show: () => <Workloads /> },
  { pattern: "/workloads/start", title: "", name: "Start a workload", show: () => <WorkloadStart /> },
  { pattern: "/workloads/compare", title: "", name: "Compare workloads", show: () => <WorkloadCompare /> },
  { pattern: "/workloads/:id", title: "", show: (at) => <WorkloadPage key={at["id"]} id={at["id"] ?? ""} /> },
  { pattern: "/workloads/:id/agents/:agent", title: "", show: (at) => <AgentPage key={at["agent"]} id={at["agent"] ?? ""} /> },
  { pattern: "/machines", title: "Machines", show: () => <Machines /> },
  { pattern: "/machines/:name", title: "", show: (at) => <MachinePage key={at["name"]} name={at["name"] ?? ""} /> },
  { pattern: "/records/:kind", title: "", show: (at) => <Records key={at["kind"]} kind={at["kind"] ?? ""} /> },
  {
    pattern: "/records/:kind/:id",
    title: "",
    show: (at) => <RecordPage key={`${at["kind"]} ${at["id"]}`} kind={at["kind"] ?? ""} id={at["id"] ?? ""} />,
  },
  { pattern: "/journal", title: "Journal", needs: "GET /api/journal", show: () => <Journal /> },
  { pattern: "/admin", title: "Admin", show: () => <Admin /> },
];
