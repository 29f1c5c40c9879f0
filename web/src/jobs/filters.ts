// SPDX-License-Identifier: Apache-2.0

import type { Row } from '../api/client';

export const sortColumns = ['name', 'namespace', 'status', 'kind', 'creationTime'] as const;
export type SortColumn = (typeof sortColumns)[number];

/** Filters select and sort the jobs of the list. They are kept in the address. */
export interface Filters {
  search: string;
  namespace: string;
  status: string;
  kind: string;
  sort: SortColumn;
  descending: boolean;
}

export const noFilters: Filters = { search: '', namespace: '', status: '', kind: '', sort: 'creationTime', descending: true };

/** filtersOf reads the filters from an address; what it does not know is ignored. */
export function filtersOf(query: URLSearchParams): Filters {
  const sort = query.get('sort') ?? '-creationTime';
  const column = sortColumns.find((name) => name === sort.replace(/^-/, ''));
  return {
    search: query.get('search') ?? '',
    namespace: query.get('namespace') ?? '',
    status: query.get('status') ?? '',
    kind: query.get('kind') ?? '',
    sort: column ?? noFilters.sort,
    descending: column ? sort.startsWith('-') : noFilters.descending,
  };
}

/** addressOf is the inverse of filtersOf; defaults are left out. The parameters are those of the API. */
export function addressOf(filters: Filters): URLSearchParams {
  const query = new URLSearchParams();
  for (const name of ['search', 'namespace', 'status', 'kind'] as const) {
    if (filters[name]) query.set(name, filters[name]);
  }
  if (filters.sort !== noFilters.sort || filters.descending !== noFilters.descending) {
    query.set('sort', (filters.descending ? '-' : '') + filters.sort);
  }
  return query;
}

export const hasFilters = (filters: Filters) => Boolean(filters.search || filters.namespace || filters.status || filters.kind);

const fields: Record<SortColumn, (row: Row) => string> = {
  name: (row) => row.name,
  namespace: (row) => row.namespace,
  status: (row) => row.status,
  kind: (row) => row.kind,
  creationTime: (row) => row.creationTime,
};

/** selected returns the jobs that match, sorted; jobs that are equal are sorted by name. */
export function selected(rows: Iterable<Row>, filters: Filters): Row[] {
  const search = filters.search.toLowerCase();
  const matching = [...rows].filter(
    (row) =>
      (!search || row.name.includes(search)) &&
      (!filters.namespace || row.namespace === filters.namespace) &&
      (!filters.status || row.status === filters.status) &&
      (!filters.kind || row.kind === filters.kind),
  );
  const field = fields[filters.sort];
  const direction = filters.descending ? -1 : 1;
  return matching.sort((a, b) => direction * compare(field(a), field(b)) || compare(a.namespace, b.namespace) || compare(a.name, b.name) || compare(a.kind, b.kind));
}

const compare = (a: string, b: string) => (a < b ? -1 : a > b ? 1 : 0);
