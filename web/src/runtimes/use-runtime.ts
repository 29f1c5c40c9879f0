// SPDX-License-Identifier: Apache-2.0

import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query';
import type { Client, Problem, Schemas } from '../api/client';
import { useSession } from '../session/session';
import { objectOf, refOf, type RuntimeObject } from './runtime-document';
import type { RuntimeRef } from './runtime-ref';

type Findings = Schemas['Findings'];
type TrialReport = Schemas['TrialReport'];

async function readRuntime(client: Client, { namespace, name }: RuntimeRef): Promise<RuntimeObject> {
  const { data } = namespace
    ? await client.GET('/api/v1/namespaces/{namespace}/trainingruntimes/{name}', { params: { path: { namespace, name } } })
    : await client.GET('/api/v1/clustertrainingruntimes/{name}', { params: { path: { name } } });
  return data as unknown as RuntimeObject;
}

/** useRuntime reads a runtime once: what is being edited does not change by itself. */
export function useRuntime(ref: RuntimeRef) {
  const { client } = useSession();
  return useQuery<RuntimeObject, Problem>({ queryKey: ['runtime', ref.namespace, ref.name], queryFn: () => readRuntime(client, ref), staleTime: Infinity, gcTime: 0 });
}

/** send creates a runtime, or replaces the one with a resourceVersion. */
async function send(client: Client, object: RuntimeObject, dryRun?: 'All'): Promise<RuntimeObject> {
  const { namespace, name } = refOf(object);
  const [body, query] = [object as never, { dryRun }];
  const isNew = !object.metadata.resourceVersion;
  let answer: { data?: unknown };
  if (namespace && isNew) answer = await client.POST('/api/v1/namespaces/{namespace}/trainingruntimes', { params: { path: { namespace }, query }, body });
  else if (namespace) answer = await client.PUT('/api/v1/namespaces/{namespace}/trainingruntimes/{name}', { params: { path: { namespace, name }, query }, body });
  else if (isNew) answer = await client.POST('/api/v1/clustertrainingruntimes', { params: { query }, body });
  else answer = await client.PUT('/api/v1/clustertrainingruntimes/{name}', { params: { path: { name }, query }, body });
  return answer.data as RuntimeObject;
}

/** useSaveRuntime stores a runtime. */
export function useSaveRuntime(resourceVersion?: string) {
  const { client } = useSession();
  const queries = useQueryClient();
  return useMutation<RuntimeObject, Problem, string>({
    mutationFn: async (text) => send(client, objectOf(text, resourceVersion)),
    onSuccess: (stored) => {
      const { namespace, name } = refOf(stored);
      queries.setQueryData(['runtime', namespace, name], stored);
      return queries.invalidateQueries({ queryKey: ['runtimes'] });
    },
  });
}

/** useValidateRuntime validates a runtime and, if it has no errors, asks the server for a dry run. */
export function useValidateRuntime(resourceVersion?: string) {
  const { client } = useSession();
  return useMutation<Findings, Problem, string>({
    mutationFn: async (text) => {
      const object = objectOf(text, resourceVersion);
      const { data } = await client.POST('/api/v1/runtimes/validate', { body: object as never });
      const findings = data as Findings;
      if (findings.errors.length === 0) await send(client, object, 'All');
      return findings;
    },
  });
}

/** useStartTest creates the job that tests a runtime. */
export function useStartTest(namespace: string) {
  const { client } = useSession();
  return useMutation<TrialReport, Problem, Schemas['RuntimeTest']>({
    mutationFn: async (body) => (await client.POST('/api/v1/namespaces/{namespace}/runtimetests', { params: { path: { namespace } }, body })).data as TrialReport,
  });
}

/** Interval in which the steps of a test are read. */
const interval = 1000;

/** useTestReport follows a test until it has finished. */
export function useTestReport(namespace: string, name: string) {
  const { client } = useSession();
  return useQuery<TrialReport, Problem>({
    queryKey: ['runtime-test', namespace, name],
    queryFn: async () => (await client.GET('/api/v1/namespaces/{namespace}/runtimetests/{name}', { params: { path: { namespace, name } } })).data as TrialReport,
    refetchInterval: ({ state }) => (state.data?.finished || state.error?.code === 404 ? false : interval),
  });
}
