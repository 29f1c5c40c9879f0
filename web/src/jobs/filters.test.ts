// SPDX-License-Identifier: Apache-2.0

import { describe, expect, test } from 'vitest';
import type { Row } from '../api/client';
import { actions, type Target } from './actions';
import { addressOf, filtersOf, noFilters, selected, type Filters } from './filters';

const row = (name: string, more: Partial<Row> = {}) => ({ kind: 'TrainJob', namespace: 'vision', name, status: 'Running', creationTime: '2026-01-01T00:00:00Z', ...more }) as Row;

describe('filters and address', () => {
  test.each<[string, Partial<Filters>]>([
    ['', {}],
    ['search=resnet&namespace=vision&status=Failed&kind=MPIJob&sort=name', { search: 'resnet', namespace: 'vision', status: 'Failed', kind: 'MPIJob', sort: 'name', descending: false }],
    ['sort=-status', { sort: 'status', descending: true }],
    ['sort=creationTime', { sort: 'creationTime', descending: false }],
  ])('"%s" is the address of its filters', (address, changed) => {
    const filters = { ...noFilters, ...changed };
    expect(filtersOf(new URLSearchParams(address))).toEqual(filters);
    expect(addressOf(filters).toString()).toBe(address);
  });

  test('an unknown sort order is ignored', () => {
    expect(filtersOf(new URLSearchParams('sort=-colour'))).toEqual(noFilters);
  });
});

describe('the list', () => {
  const rows = [row('b'), row('a', { namespace: 'speech', status: 'Failed' }), row('c', { kind: 'MPIJob', creationTime: '2026-01-02T00:00:00Z' })];
  const names = (filters: Partial<Filters>) => selected(rows, { ...noFilters, ...filters }).map((job) => job.name);

  test('has the newest job first; equal ones are sorted by namespace', () => {
    expect(names({})).toEqual(['c', 'a', 'b']);
  });
  test('is filtered', () => {
    expect(names({ search: 'B' })).toEqual(['b']);
    expect(names({ namespace: 'speech' })).toEqual(['a']);
    expect(names({ status: 'Failed' })).toEqual(['a']);
    expect(names({ kind: 'MPIJob' })).toEqual(['c']);
  });
  test('is sorted by any column, in both directions', () => {
    expect(names({ sort: 'name', descending: false })).toEqual(['a', 'b', 'c']);
    expect(names({ sort: 'name', descending: true })).toEqual(['c', 'b', 'a']);
  });
});

test('actions are offered for the jobs that they fit', () => {
  const fitting = (status: string) => actions.filter((action) => action.fits({ status } as Target)).map((action) => action.id);
  expect(fitting('Running')).toEqual(['suspend', 'delete']);
  expect(fitting('Suspended')).toEqual(['resume', 'delete']);
  expect(fitting('Failed')).toEqual(['restart', 'delete']);
  expect(fitting('Succeeded')).toEqual(['delete']);
  expect(fitting('Deleting')).toEqual([]);
});
