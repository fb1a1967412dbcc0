/** Jobs that have passed and failed on one commit, with what happened there. */
import type { components } from "../api/client";
import { When } from "./parts";

type FlakyJob = components["schemas"]["FlakyJob"];

/** With `where` it also says of which repository and workflow each job is. */
export function FlakyTable({ jobs, where = false }: { jobs: readonly FlakyJob[]; where?: boolean }) {
  return (
    <table>
      <thead>
        <tr>
          {where && <th>Repository</th>}
          {where && <th>Workflow</th>}
          <th>Job</th>
          <th>Flaky on</th>
          <th>Latest commit</th>
          <th>What happened there</th>
          <th>Last run</th>
        </tr>
      </thead>
      <tbody>
        {jobs.map((job) => (
          <tr key={`${job.repository} ${job.workflow} ${job.job}`}>
            {where && (
              <td>
                <a href={`/runs?q=${encodeURIComponent(`repository:${job.repository} workflow:${job.workflow}`)}`}>
                  {job.repository}
                </a>
              </td>
            )}
            {where && <td>{job.workflow}</td>}
            <td>{job.job}</td>
            <td class="nowrap">
              {job.contradicted} of {job.commits} commits
            </td>
            <td>
              <code>{job.latest_sha.slice(0, 12)}</code>
            </td>
            <td>{withLinks(job.latest)}</td>
            <td>
              <When at={job.updated_at} />
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

/** Return a sentence in which the ids of jobs are links. */
function withLinks(text: string) {
  return text.split(/\b(j_[0-9a-z]+)\b/).map((part, place) =>
    place % 2 ? (
      <a key={place} class="mono" href={`/jobs/${part}`}>
        {part}
      </a>
    ) : (
      part
    ),
  );
}
