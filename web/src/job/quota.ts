// SPDX-License-Identifier: Apache-2.0

import type { Job, Schemas } from '../api/client';
import { bytesOf } from './rank-levels';
import { quantity, resourcesOf } from './usage';

export interface QuotaRow {
  quota: string;
  resource: string;
  used: string;
  hard: string;
  free: string;
  /** demand of all workers of the job; "" if the job leaves it to its runtime. */
  demand: string;
}

/** quotaRows are the resources of the quota that an object names as resourcequota/NAME, or else of all quotas. */
export function quotaRows(quotas: Schemas['QuotaUsage'][], job: Job, object = ''): QuotaRow[] {
  const named = quotas.filter((quota) => object === `resourcequota/${quota.name}`);
  return (named.length > 0 ? named : quotas).flatMap((quota) =>
    Object.entries(quota.hard).map(([resource, hard]) => {
      const used = quota.used[resource] ?? '0';
      const [limit, taken] = [quantity(hard), quantity(used)];
      const free = limit === undefined || taken === undefined ? undefined : Math.max(0, limit - taken);
      return { quota: quota.name, resource, used, hard, free: amount(resource, free), demand: amount(resource, demandOf(resource, job)) };
    }),
  );
}

/** demandOf is what all workers count in a quota, such as requests.cpu, limits.memory or pods. */
function demandOf(resource: string, job: Job): number | undefined {
  const workers = job.status?.workerCount ?? job.spec.trainer?.numNodes ?? job.spec.mpiReplicaSpecs?.Worker?.replicas;
  if (!workers) return undefined;
  if (resource === 'pods' || resource === 'count/pods') return workers;
  const [, part = 'requests', name = ''] = /^(?:(requests|limits)\.)?(.*)$/.exec(resource) ?? [];
  const set = resourcesOf(job, false);
  // A container that has only a limit requests as much.
  const each = quantity(part === 'limits' ? set?.limits?.[name] : (set?.requests?.[name] ?? set?.limits?.[name]));
  return each === undefined ? undefined : workers * each;
}

function amount(resource: string, value: number | undefined): string {
  if (value === undefined) return '';
  return /memory|storage/.test(resource) ? bytesOf(value) : String(Number(value.toFixed(3)));
}
