// SPDX-License-Identifier: Apache-2.0

import { useQuery, useQueryClient, type QueryClient, type UseQueryResult } from '@tanstack/react-query';
import type { Client, Job, JobEvent, Problem, Schemas } from '../api/client';
import { pluralOf, type Plural } from '../api/client';
import type { JobRef } from '../job/use-job';
import { useSession } from '../session/session';

export type Summary = Schemas['Summary'];
export type PastRecord = Schemas['Record'];

/** notKept: this server has no history, and asking again does not help. */
export const notKept = 501;
/** maxRecords is how many records of a kind the server lists. */
export const maxRecords = 1000;

export const pathOfRecord = ({ namespace, kind, uid }: Pick<Summary, 'namespace' | 'kind' | 'uid'>) => `/history/${namespace}/${pluralOf(kind)}/${uid}`;

/** recordQuery reads a record by the UID of its job. A record does not change. */
const recordQuery = (client: Client, plural: Plural, namespace: string, nameOrUID: string) => ({
  queryKey: ['history', namespace, plural, nameOrUID],
  queryFn: async (): Promise<PastRecord> => {
    const params = { params: { path: { namespace, name: nameOrUID } } };
    const { data } =
      plural === 'mpijobs'
        ? await client.GET('/api/v1/namespaces/{namespace}/history/mpijobs/{name}', params)
        : await client.GET('/api/v1/namespaces/{namespace}/history/trainjobs/{name}', params);
    return data as PastRecord;
  },
  staleTime: Infinity,
});

/** readRecord returns the record of a reference, which several parts of a page need. */
export const readRecord = (queries: QueryClient, client: Client, { plural, namespace, record }: JobRef): Promise<PastRecord> =>
  queries.fetchQuery(recordQuery(client, plural, namespace, record ?? ''));

export const jobOf = (record: PastRecord) => record.job as unknown as Job;
export const eventsOf = (record: PastRecord): JobEvent[] => record.events.map(({ time, ...event }) => ({ ...event, timestamp: time, source: '' }));

/** useRecord reads the record of a job by its name, the newest, or by its UID. Without one, or without a history, it has an error. */
export function useRecord({ plural, namespace }: JobRef, nameOrUID: string | undefined): UseQueryResult<PastRecord, Problem> {
  const { client } = useSession();
  const queries = useQueryClient();
  return useQuery<PastRecord, Problem>({ ...recordQuery(client, plural, namespace, nameOrUID ?? ''), enabled: Boolean(nameOrUID) && !isWithoutHistory(queries) });
}

/** isWithoutHistory: the server has said that it has no history. Pages that show more with one do not ask again. */
const isWithoutHistory = (queries: QueryClient) =>
  queries.getQueryCache().findAll({ queryKey: ['history'] }).some((query) => (query.state.error as Problem | null)?.code === notKept);

export interface Records {
  /** items are the records of both kinds, the newest first. */
  items: Summary[];
  /** total is how many there are, also beyond the items. */
  total: number;
}

/** useOptionalRecords lists the records of a namespace for a page that also works without them. */
export function useOptionalRecords(namespace: string): Summary[] {
  const queries = useQueryClient();
  return useRecords(isWithoutHistory(queries) ? '' : namespace).data?.items ?? noRecords;
}

const noRecords: Summary[] = [];

/** useRecords lists the records of a namespace. */
export function useRecords(namespace: string): UseQueryResult<Records, Problem> {
  const { client } = useSession();
  return useQuery<Records, Problem>({
    queryKey: ['history', namespace],
    queryFn: async () => {
      const params = { params: { path: { namespace }, query: { limit: maxRecords } } };
      const [trainJobs, mpiJobs] = await Promise.all([
        client.GET('/api/v1/namespaces/{namespace}/history/trainjobs', params),
        client.GET('/api/v1/namespaces/{namespace}/history/mpijobs', params),
      ]);
      return merged([trainJobs.data, mpiJobs.data].flatMap((list) => list ?? []));
    },
    enabled: Boolean(namespace),
    // A job that has just finished gets its record some seconds later.
    refetchInterval: (query) => (query.state.error ? false : 15_000),
  });
}

/** merged puts the lists of both kinds together. */
export function merged(lists: Schemas['RecordList'][]): Records {
  const items = lists.flatMap((list) => list.items).sort((a, b) => b.finishTime.localeCompare(a.finishTime));
  return { items, total: lists.reduce((sum, list) => sum + list.total, 0) };
}

/** matching are the records whose job has the text in its name, and the state. */
export const matching = (records: Summary[], search: string, state: string): Summary[] =>
  records.filter((record) => record.name.includes(search.toLowerCase()) && (!state || record.state === state));
