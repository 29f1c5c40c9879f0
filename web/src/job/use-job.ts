// SPDX-License-Identifier: Apache-2.0

import { useQuery, useQueryClient, type UseQueryResult } from '@tanstack/react-query';
import { useEffect } from 'react';
import type { Client, Diagnosis, Job, JobEvent, Plural, Problem, Schemas } from '../api/client';
import { eventsOf, jobOf, readRecord, type PastRecord } from '../history/records';
import { useChanges, useIsWatched } from '../live/live-jobs';
import { useSession } from '../session/session';

export interface JobRef {
  kind: string;
  plural: Plural;
  namespace: string;
  name: string;
  /** record is the UID of a job that is read from the history; its name may belong to another job. */
  record?: string;
}

export async function readJob(client: Client, { plural, namespace, name }: JobRef): Promise<Job> {
  const params = { params: { path: { namespace, name } } };
  const { data } =
    plural === 'mpijobs' ? await client.GET('/api/v1/namespaces/{namespace}/mpijobs/{name}', params) : await client.GET('/api/v1/namespaces/{namespace}/trainjobs/{name}', params);
  return data as unknown as Job;
}

async function readEvents(client: Client, { plural, namespace, name }: JobRef): Promise<JobEvent[]> {
  const params = { params: { path: { namespace, name } } };
  const { data } =
    plural === 'mpijobs'
      ? await client.GET('/api/v1/namespaces/{namespace}/mpijobs/{name}/events', params)
      : await client.GET('/api/v1/namespaces/{namespace}/trainjobs/{name}/events', params);
  return data?.events ?? [];
}

async function diagnose(client: Client, { plural, namespace, name }: JobRef): Promise<Diagnosis> {
  const params = { params: { path: { namespace, name } } };
  const { data } =
    plural === 'mpijobs'
      ? await client.GET('/api/v1/namespaces/{namespace}/mpijobs/{name}/diagnose', params)
      : await client.GET('/api/v1/namespaces/{namespace}/trainjobs/{name}/diagnose', params);
  return data as Diagnosis;
}

/** Interval in which a job is read while the watch is down. */
const interval = 10_000;

/**
 * useOfJob reads a part of a job, and reads it again when the watch says that the job has changed. It polls while the watch is down.
 * Parts of a record are read once.
 */
function useOfJob<Data>(ref: JobRef, part: string, read: (client: Client, ref: JobRef) => Promise<Data>, ofRecord: (record: PastRecord) => Data): UseQueryResult<Data, Problem> {
  const { client } = useSession();
  const queries = useQueryClient();
  const changes = useChanges(ref);
  const isWatched = useIsWatched(ref);
  const { plural, namespace, name, record } = ref;
  useEffect(() => {
    if (record) return;
    // Not with each change: a job that starts has many in a second.
    const timer = setTimeout(() => void queries.invalidateQueries({ queryKey: [plural, namespace, name, part] }), 200);
    return () => clearTimeout(timer);
  }, [queries, plural, namespace, name, record, part, changes, isWatched]);
  return useQuery<Data, Problem>({
    queryKey: record ? ['history', namespace, plural, record, part] : [plural, namespace, name, part],
    queryFn: async () => (record ? ofRecord(await readRecord(queries, client, ref)) : read(client, ref)),
    refetchInterval: record || isWatched ? false : interval,
  });
}

export const useJob = (ref: JobRef) => useOfJob(ref, 'job', readJob, jobOf);
export const useJobEvents = (ref: JobRef) => useOfJob(ref, 'events', readEvents, eventsOf);
/** useDiagnosis explains the state of a job now: a record has no diagnosis. */
export const useDiagnosis = (ref: JobRef) => useOfJob<Diagnosis | null>(ref, 'diagnosis', diagnose, () => null);

/** useQuota reads the quotas of a namespace, again and again: other jobs free them. */
export function useQuota(namespace: string): UseQueryResult<Schemas['Quota'], Problem> {
  const { client } = useSession();
  return useQuery<Schemas['Quota'], Problem>({
    queryKey: ['quota', namespace],
    queryFn: async () => (await client.GET('/api/v1/namespaces/{namespace}/quota', { params: { path: { namespace } } })).data as Schemas['Quota'],
    refetchInterval: 15_000,
  });
}
