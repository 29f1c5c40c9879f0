// SPDX-License-Identifier: Apache-2.0

import { pluralOf, type Client, type Row } from '../api/client';
import { hasFinished } from '../shared/statuses';

/** What a page must know about a job to offer actions. */
export type Target = Pick<Row, 'kind' | 'namespace' | 'name' | 'status'>;

export interface Action {
  id: 'suspend' | 'resume' | 'restart' | 'delete';
  name: string;
  /** done is the word for a message: 3 jobs are suspended. */
  done: string;
  fits(job: Target): boolean;
  run(client: Client, job: Target): Promise<unknown>;
}

const post = (verb: 'suspend' | 'resume' | 'restart') => (client: Client, job: Target) => {
  const params = { params: { path: { namespace: job.namespace, name: job.name } } };
  return pluralOf(job.kind) === 'mpijobs'
    ? client.POST(`/api/v1/namespaces/{namespace}/mpijobs/{name}/${verb}`, params)
    : client.POST(`/api/v1/namespaces/{namespace}/trainjobs/{name}/${verb}`, params);
};

/** actions on existing jobs. The server decides again whether they are possible. */
export const actions: Action[] = [
  { id: 'suspend', name: 'Suspend', done: 'suspended', fits: (job) => !hasFinished(job.status) && !['Suspended', 'Deleting', 'Queued'].includes(job.status), run: post('suspend') },
  { id: 'resume', name: 'Resume', done: 'resumed', fits: (job) => job.status === 'Suspended', run: post('resume') },
  { id: 'restart', name: 'Restart', done: 'restarted', fits: (job) => job.status === 'Failed', run: post('restart') },
  {
    id: 'delete',
    name: 'Delete',
    done: 'deleted',
    fits: (job) => job.status !== 'Deleting',
    run: (client, job) => {
      const params = { params: { path: { namespace: job.namespace, name: job.name } } };
      return pluralOf(job.kind) === 'mpijobs'
        ? client.DELETE('/api/v1/namespaces/{namespace}/mpijobs/{name}', params)
        : client.DELETE('/api/v1/namespaces/{namespace}/trainjobs/{name}', params);
    },
  },
];

export const pathOf = (job: { kind: string; namespace: string; name: string }) => `/jobs/${job.namespace}/${pluralOf(job.kind)}/${job.name}`;
export const clonePath = (job: { kind: string; namespace: string; name: string }) => `/create?clone=${job.namespace}/${pluralOf(job.kind)}/${job.name}`;
