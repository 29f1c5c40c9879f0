// SPDX-License-Identifier: Apache-2.0

import { pluralOf, type Row } from '../api/client';
import type { Summary } from '../history/records';
import { keyOf } from '../live/events';
import { localTime } from '../shared/time';
import type { JobRef } from './use-job';

/** Run is a job whose curves can be drawn beside those of another one: it exists, or is in the history. */
export interface Run {
  /** key is what the address has. */
  key: string;
  ref: JobRef;
  isRunning: boolean;
  label: string;
}

/** maxChoices is how many jobs, and how many records, are offered for a comparison. */
export const maxChoices = 200;

const ofRow = (row: Row): Run => ({
  key: keyOf(row),
  ref: { kind: row.kind, plural: pluralOf(row.kind), namespace: row.namespace, name: row.name },
  isRunning: row.status === 'Running',
  label: `${row.name} (${row.kind}, ${row.status})`,
});

const ofRecord = (record: Summary): Run => ({
  key: `record/${record.uid}`,
  ref: { kind: record.kind, plural: pluralOf(record.kind), namespace: record.namespace, name: record.name, record: record.uid },
  isRunning: false,
  label: `${record.name} (${record.kind}, ${record.state}, finished ${localTime(record.finishTime)})`,
});

/** runOf is the run of a namespace with a key. */
export function runOf(key: string, rows: ReadonlyMap<string, Row>, records: Summary[], namespace: string): Run | undefined {
  const row = rows.get(key);
  if (row) return row.namespace === namespace ? ofRow(row) : undefined;
  const record = records.find(({ uid }) => key === `record/${uid}`);
  return record && ofRecord(record);
}

/** otherRuns are what a job can be compared with: the newest jobs of its namespace, the newest records of jobs that do not exist any more, and the chosen run. */
export function otherRuns(rows: ReadonlyMap<string, Row>, records: Summary[], self: JobRef, selfUID: string, chosen: Run | undefined): Run[] {
  const existing = [...rows.values()]
    .filter((row) => row.namespace === self.namespace && row.startTime && row.uid !== selfUID)
    .sort((a, b) => b.creationTime.localeCompare(a.creationTime))
    .slice(0, maxChoices);
  const uids = new Set([...rows.values()].map((row) => row.uid));
  const past = records.filter((record) => record.startTime && record.uid !== selfUID && !uids.has(record.uid)).slice(0, maxChoices);
  const runs = [...existing.map(ofRow), ...past.map(ofRecord)];
  return chosen && !runs.some((run) => run.key === chosen.key) ? [chosen, ...runs] : runs;
}
