// SPDX-License-Identifier: Apache-2.0

import { useQuery } from '@tanstack/react-query';
import type { Problem } from '../api/client';
import { useSession } from '../session/session';
import type { ClusterUse, TimeRange } from './cluster-use';

/** Interval in which the numbers are read again. */
const interval = 15_000;

/** useCluster reads how the cluster is used; with a namespace, only the jobs of that. */
export function useCluster(namespace: string, timeRange: TimeRange) {
  const { client } = useSession();
  return useQuery<ClusterUse, Problem>({
    queryKey: ['cluster', namespace, timeRange],
    queryFn: async () => (await client.GET('/api/v1/cluster', { params: { query: { timeRange, ...(namespace && { namespace }) } } })).data as ClusterUse,
    refetchInterval: interval,
    placeholderData: (before) => before,
  });
}
