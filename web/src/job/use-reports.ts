// SPDX-License-Identifier: Apache-2.0

import { useQuery, useQueryClient, type UseQueryResult } from '@tanstack/react-query';
import type { Client, Problem, Schemas } from '../api/client';
import { readRecord } from '../history/records';
import { useSession } from '../session/session';
import { withUsage, type RankReport } from './rank-levels';
import type { JobRef } from './use-job';

/** interval in which agents report, if the operator is not busy. */
export const interval = 5_000;

export type Curve = Schemas['Curve'];
export type Usage = Schemas['Report'];

/** timeRanges are those of the API. */
export const timeRanges = ['1h', '6h', '24h', '7d'] as const;
export type TimeRange = (typeof timeRanges)[number];

/** notAvailable: this server cannot read reports, and asking again does not help. */
export const notAvailable = 501;

const polling = (isRunning: boolean) => (query: { state: { error: Problem | null } }) => (isRunning && query.state.error?.code !== notAvailable ? interval : false);

/** useRanks reads all ranks of a job that runs, as its agents last reported them. */
export function useRanks(ref: JobRef, isRunning: boolean): UseQueryResult<RankReport, Problem> {
  const { client } = useSession();
  const queries = useQueryClient();
  const queryKey = [ref.plural, ref.namespace, ref.name, 'ranks'];
  return useQuery<RankReport, Problem>({
    queryKey,
    queryFn: async () => withUsage(await readRanks(client, ref), queries.getQueryData<RankReport>(queryKey)),
    enabled: isRunning,
    staleTime: 0,
    refetchInterval: polling(isRunning),
  });
}

/** useCurves reads the metrics of a job over time. Those of a finished job do not change. */
export function useCurves(ref: JobRef | undefined, isRunning: boolean): UseQueryResult<Curve[], Problem> {
  const { client } = useSession();
  const queries = useQueryClient();
  return useQuery<Curve[], Problem>({
    queryKey: ref?.record ? ['history', ref.namespace, ref.plural, ref.record, 'curves'] : [ref?.plural, ref?.namespace, ref?.name, 'curves'],
    queryFn: async () => {
      if (ref?.record) return (await readRecord(queries, client, ref)).curves ?? [];
      return ref ? readCurves(client, ref) : [];
    },
    enabled: ref !== undefined,
    refetchInterval: polling(isRunning && !ref?.record),
  });
}

/** useUsage reads what the pods of a job use. Metrics have a value every 15 seconds or less often. */
export function useUsage(ref: JobRef, timeRange: TimeRange, isRunning: boolean): UseQueryResult<Usage, Problem> {
  const { client } = useSession();
  return useQuery<Usage, Problem>({
    queryKey: [ref.plural, ref.namespace, ref.name, 'usage', timeRange],
    queryFn: () => readUsage(client, ref, timeRange),
    refetchInterval: isRunning ? 3 * interval : false,
  });
}

async function readRanks(client: Client, { plural, namespace, name }: JobRef) {
  const params = { params: { path: { namespace, name } } };
  const { data } =
    plural === 'mpijobs'
      ? await client.GET('/api/v1/namespaces/{namespace}/mpijobs/{name}/ranks', params)
      : await client.GET('/api/v1/namespaces/{namespace}/trainjobs/{name}/ranks', params);
  return data as Schemas['JobRanks'];
}

async function readCurves(client: Client, { plural, namespace, name }: JobRef) {
  const params = { params: { path: { namespace, name } } };
  const { data } =
    plural === 'mpijobs'
      ? await client.GET('/api/v1/namespaces/{namespace}/mpijobs/{name}/metrics/curves', params)
      : await client.GET('/api/v1/namespaces/{namespace}/trainjobs/{name}/metrics/curves', params);
  return data?.curves ?? [];
}

async function readUsage(client: Client, { plural, namespace, name }: JobRef, timeRange: TimeRange) {
  const params = { params: { path: { namespace, name }, query: { timeRange } } };
  const { data } =
    plural === 'mpijobs'
      ? await client.GET('/api/v1/namespaces/{namespace}/mpijobs/{name}/metrics', params)
      : await client.GET('/api/v1/namespaces/{namespace}/trainjobs/{name}/metrics', params);
  return data as Usage;
}
