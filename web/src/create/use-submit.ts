// SPDX-License-Identifier: Apache-2.0

import { useState } from 'react';
import { parse } from 'yaml';
import { pluralOf, Problem, type Client, type Job, type PreflightReport } from '../api/client';
import { pathOf } from '../jobs/actions';
import { useSession } from '../session/session';

export interface Submit {
  isBusy: boolean;
  problem: Problem | undefined;
  /** report of the preflight checks, after a check. */
  report: PreflightReport | undefined;
  create(text: string): Promise<string | undefined>;
  check(text: string): Promise<void>;
  reset(): void;
}

/** useSubmit creates a job, or checks it: by the server's dry run, and by preflight. */
export function useSubmit(): Submit {
  const { client } = useSession();
  const [state, setState] = useState<{ isBusy: boolean; problem?: Problem; report?: PreflightReport }>({ isBusy: false });

  const attempt = async <Result>(work: () => Promise<Result>): Promise<Result | undefined> => {
    setState({ isBusy: true });
    try {
      const result = await work();
      setState((before) => ({ ...before, isBusy: false }));
      return result;
    } catch (error) {
      setState({ isBusy: false, problem: error instanceof Problem ? error : new Problem(0, String(error)) });
      return undefined;
    }
  };

  return {
    isBusy: state.isBusy,
    problem: state.problem,
    report: state.report,
    reset: () => setState({ isBusy: false }),
    create: (text) =>
      attempt(async () => {
        const job = parse(text) as Job;
        await send(client, job);
        return pathOf({ kind: job.kind, namespace: job.metadata.namespace, name: job.metadata.name });
      }),
    check: async (text) => {
      await attempt(async () => {
        const job = parse(text) as Job;
        await send(client, job, 'All');
        const { data } = await client.POST('/api/v1/namespaces/{namespace}/preflight', { params: { path: { namespace: namespaceOf(job) } }, body: job as never });
        setState((before) => ({ ...before, report: data }));
      });
    },
  };
}

function namespaceOf(job: Job): string {
  const namespace = job.metadata?.namespace;
  if (!namespace) throw new Problem(422, 'The job has no namespace', ['Set metadata.namespace'], [{ field: 'metadata.namespace', reason: 'is required' }]);
  return namespace;
}

async function send(client: Client, job: Job, dryRun?: 'All') {
  const params = { params: { path: { namespace: namespaceOf(job) }, query: { dryRun } } };
  if (pluralOf(job.kind) === 'mpijobs') await client.POST('/api/v1/namespaces/{namespace}/mpijobs', { ...params, body: job as never });
  else await client.POST('/api/v1/namespaces/{namespace}/trainjobs', { ...params, body: job as never });
}
