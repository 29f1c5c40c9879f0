// SPDX-License-Identifier: Apache-2.0

import type { Schemas } from '../api/client';
import { bytesOf } from '../job/rank-levels';

export type ClusterUse = Schemas['ClusterUse'];
export type TimeRange = '1h' | '6h' | '24h' | '7d';
type Amount = Schemas['Amount'];
type Capacity = Schemas['Capacity'];

/** totalOf is the sum over the nodes on which new pods can be scheduled, and what is requested of them. */
export function totalOf(nodes: Capacity[], resource: 'cpu' | 'memory' | 'gpu'): Amount {
  const total = { allocatable: 0, requested: 0 };
  for (const node of nodes) {
    if (!node.ready || !node.schedulable) continue;
    total.allocatable += node[resource].allocatable;
    total.requested += node[resource].requested;
  }
  return total;
}

/** percentOf is what is requested, as a whole number from 0 to 100. */
export const percentOf = ({ allocatable, requested }: Amount) => (allocatable > 0 ? Math.min(100, Math.round((100 * requested) / allocatable)) : 0);

export const number = (value: number) => String(Number(value.toFixed(value < 10 ? 1 : 0)));

/** amountText writes an amount as 3 of 8. */
export function amountText(resource: 'cpu' | 'memory' | 'gpu', { allocatable, requested }: Amount): string {
  const write = resource === 'memory' ? bytesOf : number;
  return `${write(requested)} of ${write(allocatable)}`;
}

/** wasted is what waited for nothing: nodes that were idle before the ranks started, and jobs that failed. */
export const wasted = ({ idle, failed }: Schemas['Hours']) => idle + failed;
