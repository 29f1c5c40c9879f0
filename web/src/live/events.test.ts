// SPDX-License-Identifier: Apache-2.0

import { describe, expect, test } from 'vitest';
import type { Row } from '../api/client';
import { applied, isSynced, noJobs, UnknownJob, type WatchEvent } from './events';
import { MessageReader } from './sse';

const row = (name: string, more: Partial<Row> = {}): Row =>
  ({ kind: 'TrainJob', namespace: 'vision', name, uid: name, status: 'Pending', creationTime: '2026-01-01T00:00:00Z', ...more }) as Row;
const added = (name: string, more: Partial<Row> = {}): WatchEvent => ({ type: 'ADDED', kind: 'TrainJob', namespace: 'vision', name, job: row(name, more) });
const synced = (kind: string, resourceVersion: string): WatchEvent => ({ type: 'SYNCED', kind, resourceVersion });
const modified = (name: string, changes: object, resourceVersion: string): WatchEvent => ({ type: 'MODIFIED', kind: 'TrainJob', namespace: 'vision', name, changes, resourceVersion });

describe('jobs from watch events', () => {
  test('are synced when both kinds are', () => {
    const first = applied(noJobs, [added('a'), synced('TrainJob', '5')]);
    expect(isSynced(first)).toBe(false);
    const both = applied(first, [synced('MPIJob', '7')]);
    expect(isSynced(both)).toBe(true);
    expect(both.versions).toEqual({ TrainJob: '5', MPIJob: '7' });
  });

  test('change by merge patches: null removes a field', () => {
    const jobs = applied(noJobs, [added('a', { message: 'waits' }), modified('a', { status: 'Running', message: null }, '9')]);
    const changed = jobs.rows.get('TrainJob/vision/a');
    expect(changed?.status).toBe('Running');
    expect(changed).not.toHaveProperty('message');
    expect(jobs.versions.TrainJob).toBe('9');
  });

  test('do not change what was read before', () => {
    const before = applied(noJobs, [added('a')]);
    applied(before, [modified('a', { status: 'Failed' }, '9'), { type: 'DELETED', kind: 'TrainJob', namespace: 'vision', name: 'a' }]);
    expect(before.rows.get('TrainJob/vision/a')?.status).toBe('Pending');
  });

  test('jobs of both kinds may have one name', () => {
    const jobs = applied(noJobs, [added('a'), { ...added('a'), kind: 'MPIJob', job: row('a', { kind: 'MPIJob' }) }]);
    expect(jobs.rows.size).toBe(2);
    expect(applied(jobs, [{ type: 'DELETED', kind: 'TrainJob', namespace: 'vision', name: 'a' }]).rows.size).toBe(1);
  });

  test('a change of an unknown job is an error', () => {
    expect(() => applied(noJobs, [modified('new', { status: 'Running' }, '3')])).toThrow(UnknownJob);
  });
});

describe('server-sent events', () => {
  test('are read across pieces, without comments', () => {
    const reader = new MessageReader();
    expect(reader.read(':\n\nid: 4\ndata: {"type":"ADD')).toEqual([]);
    expect(reader.read('ED"}\n')).toEqual([]);
    expect(reader.read('\nid: \ndata: {"type":\ndata: "SYNCED"}\n\n')).toEqual([{ type: 'ADDED' }, { type: 'SYNCED' }]);
  });
});
