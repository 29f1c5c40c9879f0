// SPDX-License-Identifier: Apache-2.0

import { pluralOf, type Client, type Job, type Row } from '../api/client';
import { hasFinished } from '../shared/statuses';

/** What a page must know about a job to offer actions. */
export type Target = Pick<Row, 'kind' | 'namespace' | 'name' | 'status'>;

export interface Action {
  id: 'suspend' | 'resume' | 'restart' | 'delete';
  name: string;
  /** done is the word for a message: 3 jobs are suspended. */
  done: string;
  /** loss says what cannot be restored; the page asks before such an action. */
  loss?: string;
  fits(job: Target): boolean;
  /** run returns the name of the job afterwards: a restarted job has a new one, a deleted job none. */
  run(client: Client, job: Target): Promise<string | undefined>;
}

const post = (verb: 'suspend' | 'resume' | 'restart') => async (client: Client, job: Target) => {
  const params = { params: { path: { namespace: job.namespace, name: job.name } } };
  const { data } =
    pluralOf(job.kind) === 'mpijobs'
      ? await client.POST(`/api/v1/namespaces/{namespace}/mpijobs/{name}/${verb}`, params)
      : await client.POST(`/api/v1/namespaces/{namespace}/trainjobs/{name}/${verb}`, params);
  return (data as unknown as Job).metadata.name;
};

/** actions on existing jobs. The server decides again whether they are possible. */
export const actions: Action[] = [
  { id: 'suspend', name: 'Suspend', done: 'suspended', fits: (job) => !hasFinished(job.status) && !['Suspended', 'Deleting', 'Queued'].includes(job.status), run: post('suspend') },
  { id: 'resume', name: 'Resume', done: 'resumed', fits: (job) => job.status === 'Suspended', run: post('resume') },
  {
    id: 'restart',
    name: 'Restart',
    done: 'restarted',
    loss: 'A copy of the job is created under a new name. The failed job, its pods and their logs are deleted, and cannot be restored.',
    fits: (job) => job.status === 'Failed',
    run: post('restart'),
  },
  {
    id: 'delete',
    name: 'Delete',
    done: 'deleted',
    loss: 'A deleted job, its pods and their logs cannot be restored.',
    fits: (job) => job.status !== 'Deleting',
    run: async (client, job) => {
      const params = { params: { path: { namespace: job.namespace, name: job.name } } };
      if (pluralOf(job.kind) === 'mpijobs') await client.DELETE('/api/v1/namespaces/{namespace}/mpijobs/{name}', params);
      else await client.DELETE('/api/v1/namespaces/{namespace}/trainjobs/{name}', params);
      return undefined;
    },
  },
];

export const pathOf = (job: { kind: string; namespace: string; name: string }) => `/jobs/${job.namespace}/${pluralOf(job.kind)}/${job.name}`;
/** clonePath is the page that creates a copy of a job, or of that of a record. */
export const clonePath = (job: { kind: string; namespace: string; name: string; record?: string }) =>
  `/create?clone=${job.namespace}/${pluralOf(job.kind)}/${job.name}${job.record ? `&record=${job.record}` : ''}`;
