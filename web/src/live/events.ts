// SPDX-License-Identifier: Apache-2.0

import type { Row } from '../api/client';

/** WatchEvent is a message of the server's watch of jobs. */
export interface WatchEvent {
  type: 'ADDED' | 'MODIFIED' | 'DELETED' | 'SYNCED';
  kind: string;
  namespace?: string;
  name?: string;
  uid?: string;
  resourceVersion?: string;
  job?: Row;
  changes?: Partial<Record<keyof Row, unknown>>;
}

/** Jobs are all jobs of the watch, and what is needed to resume it. */
export interface Jobs {
  rows: ReadonlyMap<string, Row>;
  /** versions to resume with, by kind; a kind without one has not been sent completely. */
  versions: Readonly<Record<string, string>>;
}

export const noJobs: Jobs = { rows: new Map(), versions: {} };

export const keyOf = (job: { kind: string; namespace?: string; name?: string }) => `${job.kind}/${job.namespace}/${job.name}`;

/** isSynced: all existing jobs of both kinds have been received. */
export const isSynced = (jobs: Jobs) => Boolean(jobs.versions.TrainJob && jobs.versions.MPIJob);

/** UnknownJob: a change of a job that was never sent; the watch must start over. */
export class UnknownJob extends Error {}

/**
 * applied returns the jobs after some events. Changes are JSON merge patches of rows, which
 * have only flat fields and lists, so null removes a field and all else replaces it.
 */
export function applied(jobs: Jobs, events: WatchEvent[]): Jobs {
  const rows = new Map(jobs.rows);
  const versions = { ...jobs.versions };
  for (const event of events) {
    const key = keyOf(event);
    if (event.type === 'ADDED' && event.job) rows.set(key, event.job);
    if (event.type === 'DELETED') rows.delete(key);
    if (event.type === 'MODIFIED') {
      const before = rows.get(key);
      if (!before) throw new UnknownJob(`the watch sent a change of ${key}, which is not known`);
      rows.set(key, patched(before, event.changes ?? {}));
    }
    if (event.resourceVersion) versions[event.kind] = event.resourceVersion;
  }
  return { rows, versions };
}

function patched(row: Row, changes: Partial<Record<keyof Row, unknown>>): Row {
  const result: Record<string, unknown> = { ...row };
  for (const [field, value] of Object.entries(changes)) {
    if (value === null) delete result[field];
    else result[field] = value;
  }
  return result as unknown as Row;
}
