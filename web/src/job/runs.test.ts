// SPDX-License-Identifier: Apache-2.0

import { expect, test } from 'vitest';
import type { Row } from '../api/client';
import type { Summary } from '../history/records';
import { keyOf } from '../live/events';
import { maxChoices, otherRuns, runOf } from './runs';
import type { JobRef } from './use-job';

const row = (name: string, more: Partial<Row> = {}) =>
  ({ kind: 'TrainJob', namespace: 'vision', name, uid: `uid-${name}`, status: 'Succeeded', creationTime: '2026-01-01T00:00:00Z', startTime: '2026-01-01T00:00:01Z', ...more }) as Row;
const record = (name: string, more: Partial<Summary> = {}) =>
  ({ kind: 'TrainJob', namespace: 'vision', name, uid: `uid-${name}`, state: 'Failed', finishTime: '2026-01-02T00:00:00Z', startTime: '2026-01-01T00:00:01Z', ...more }) as Summary;
const rows = (...all: Row[]) => new Map(all.map((one) => [keyOf(one), one]));
const self: JobRef = { kind: 'TrainJob', plural: 'trainjobs', namespace: 'vision', name: 'self' };

test('a job is compared with jobs and records of its namespace, each once', () => {
  const existing = rows(row('self'), row('before'), row('elsewhere', { namespace: 'nlp' }), row('waits', { startTime: undefined }));
  const records = [record('self'), record('before'), record('deleted'), record('never-started', { startTime: undefined })];
  expect(otherRuns(existing, records, self, 'uid-self', undefined).map((run) => run.key)).toEqual(['TrainJob/vision/before', 'record/uid-deleted']);
});

test('a record is not the job that has its name now', () => {
  const earlier = { ...self, record: 'uid-earlier' };
  expect(otherRuns(rows(row('self')), [record('self', { uid: 'uid-earlier' })], earlier, 'uid-earlier', undefined).map((run) => run.key)).toEqual(['TrainJob/vision/self']);
});

test('the address names a job or a record', () => {
  expect(runOf('TrainJob/vision/before', rows(row('before', { status: 'Running' })), [], 'vision')).toMatchObject({ isRunning: true, ref: { name: 'before' } });
  expect(runOf('record/uid-deleted', rows(), [record('deleted')], 'vision')?.ref).toEqual({ ...self, name: 'deleted', record: 'uid-deleted' });
  expect(runOf('TrainJob/nlp/x', rows(row('x', { namespace: 'nlp' })), [], 'vision')).toBeUndefined();
  expect(runOf('record/other', rows(), [record('deleted')], 'vision')).toBeUndefined();
});

test('the chosen run is offered, whatever its age', () => {
  const many = Array.from({ length: maxChoices + 1 }, (_, index) => record(`r${index}`));
  const chosen = runOf(`record/uid-r${maxChoices}`, rows(), many, 'vision');
  const keys = otherRuns(rows(), many, self, '', chosen).map((run) => run.key);
  expect([keys[0], keys.length]).toEqual([chosen?.key, maxChoices + 1]);
});
