// SPDX-License-Identifier: Apache-2.0

import { useState, useSyncExternalStore } from 'react';
import { parse } from 'yaml';
import { pluralOf, Problem, type Client, type Job } from '../api/client';
import { pathOf } from '../jobs/actions';
import { useSession } from '../session/session';
import { Submission, type State } from './submission';

export interface Submit extends State {
  create(text: string): Promise<string | undefined>;
  check(text: string): Promise<void>;
  /** reset is called when the text changes. */
  reset(): void;
}

/** useSubmit creates a job, or checks it: by the server's dry run, and by preflight. */
export function useSubmit(): Submit {
  const { client } = useSession();
  const [submission] = useState(() => new Submission());
  const state = useSyncExternalStore(submission.subscribe, submission.get);
  return {
    ...state,
    reset: () => submission.reset(),
    create: (text) =>
      submission.create(async () => {
        const job = parse(text) as Job;
        await send(client, job);
        return pathOf({ kind: job.kind, namespace: job.metadata.namespace, name: job.metadata.name });
      }),
    check: (text) =>
      submission.runCheck(async (signal) => {
        const job = parse(text) as Job;
        await send(client, job, { dryRun: 'All', signal });
        const params = { path: { namespace: namespaceOf(job) } };
        const { data } = await client.POST('/api/v1/namespaces/{namespace}/preflight', { params, body: job as never, signal });
        return data;
      }),
  };
}

function namespaceOf(job: Job): string {
  const namespace = job.metadata?.namespace;
  if (!namespace) throw new Problem(422, 'The job has no namespace', ['Set metadata.namespace'], [{ field: 'metadata.namespace', reason: 'is required' }]);
  return namespace;
}

async function send(client: Client, job: Job, { dryRun, signal }: { dryRun?: 'All'; signal?: AbortSignal } = {}) {
  const params = { params: { path: { namespace: namespaceOf(job) }, query: { dryRun } }, signal };
  if (pluralOf(job.kind) === 'mpijobs') await client.POST('/api/v1/namespaces/{namespace}/mpijobs', { ...params, body: job as never });
  else await client.POST('/api/v1/namespaces/{namespace}/trainjobs', { ...params, body: job as never });
}
