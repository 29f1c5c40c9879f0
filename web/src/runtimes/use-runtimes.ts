// SPDX-License-Identifier: Apache-2.0

import { useQuery } from '@tanstack/react-query';
import type { Problem, Runtime } from '../api/client';
import { useSession } from '../session/session';

/** useRuntimes lists the runtimes that a namespace can use; without one, those of the cluster. */
export function useRuntimes(namespace: string) {
  const { client } = useSession();
  return useQuery<Runtime[], Problem>({
    queryKey: ['runtimes', namespace],
    queryFn: async () => {
      const { data } = namespace
        ? await client.GET('/api/v1/namespaces/{namespace}/clustertrainingruntimes', { params: { path: { namespace } } })
        : await client.GET('/api/v1/clustertrainingruntimes');
      return data?.items ?? [];
    },
  });
}
