// SPDX-License-Identifier: Apache-2.0

import type { Schemas } from '../api/client';
import { bytesOf } from './rank-levels';
import { quantity } from './usage';

export interface QuotaRow {
  quota: string;
  resource: string;
  used: string;
  hard: string;
  free: string;
}

/** quotaRows are the resources of the quota that an object names as resourcequota/NAME, or else of all quotas. */
export function quotaRows(quotas: Schemas['QuotaUsage'][], object = ''): QuotaRow[] {
  const named = quotas.filter((quota) => object === `resourcequota/${quota.name}`);
  return (named.length > 0 ? named : quotas).flatMap((quota) =>
    Object.entries(quota.hard).map(([resource, hard]) => {
      const used = quota.used[resource] ?? '0';
      return { quota: quota.name, resource, used, hard, free: freeOf(resource, quantity(hard), quantity(used)) };
    }),
  );
}

function freeOf(resource: string, hard: number | undefined, used: number | undefined): string {
  if (hard === undefined || used === undefined) return '';
  const free = Math.max(0, hard - used);
  return /memory|storage/.test(resource) ? bytesOf(free) : String(Number(free.toFixed(3)));
}
