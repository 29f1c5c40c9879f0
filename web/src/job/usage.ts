// SPDX-License-Identifier: Apache-2.0

import type { Job, Schemas } from '../api/client';
import { secondsBetween } from '../shared/time';
import type { CurvePoint } from './curves';
import { bytesOf, coresOf } from './rank-levels';
import type { Usage } from './use-reports';

type Sample = Schemas['Sample'];

/** PodUsage is what one pod uses now, and used most in the time range. */
export interface PodUsage {
  name: string;
  role: string;
  values: { latest: number; peak: number; limit?: number; limitName?: string }[];
}

/** resources that are shown, in the order of columns. */
export const resources = [
  { field: 'cpu', name: 'CPU', resource: 'cpu' },
  { field: 'memory', name: 'Memory', resource: 'memory' },
  { field: 'gpu', name: 'GPU', resource: '' },
  { field: 'gpuMemory', name: 'GPU memory', resource: '' },
  { field: 'networkReceive', name: 'Received', resource: '' },
  { field: 'networkTransmit', name: 'Transmitted', resource: '' },
] as const;

type Field = (typeof resources)[number]['field'];

/** formats write the values of each resource. */
export const formats: Record<Field, (value: number) => string> = {
  cpu: coresOf,
  memory: bytesOf,
  gpu: (value) => `${Math.round(value)} %`,
  gpuMemory: bytesOf,
  networkReceive: (value) => `${bytesOf(value)}/s`,
  networkTransmit: (value) => `${bytesOf(value)}/s`,
};

type PodReport = Usage['workers'][number];

export const roleOf = ({ index }: Pick<PodReport, 'index'>) => (index === null ? 'Launcher' : `Worker ${index}`);

/** samplesOf are the values of a resource over the seconds since the first sample of the pod, so that its charts have one axis. */
export function samplesOf(pod: PodReport, field: Field): CurvePoint[] {
  const first = resources.flatMap((resource) => pod[resource.field][0]?.timestamp ?? []).sort()[0] ?? '';
  return pod[field].map(({ timestamp, value }) => ({ x: secondsBetween(first, timestamp), y: value }));
}

/** usageOf returns the usage of all pods; a value that no sample exists for is NaN. */
export function usageOf(report: Usage, job: Job): PodUsage[] {
  const pods = [...(report.launcher ? [report.launcher] : []), ...report.workers];
  return pods.map((pod) => {
    const isLauncher = pod.index === null;
    return {
      name: pod.podName,
      role: roleOf(pod),
      values: resources.map(({ field, resource }) => ({ ...latestOf(pod[field]), ...limitOf(resource && job, isLauncher, resource) })),
    };
  });
}

function latestOf(samples: Sample[]) {
  return { latest: samples.at(-1)?.value ?? NaN, peak: samples.reduce((peak, sample) => Math.max(peak, sample.value), -Infinity) };
}

/** limitOf is the limit of a pod, or else its request, if the job itself sets it: its runtime may have others. */
function limitOf(job: Job | '', isLauncher: boolean, resource: string): { limit?: number; limitName?: string } {
  if (!job) return {};
  const set = resourcesOf(job, isLauncher);
  for (const name of ['limits', 'requests'] as const) {
    const limit = quantity(set?.[name]?.[resource]);
    if (limit !== undefined) return { limit, limitName: name === 'limits' ? 'limit' : 'request' };
  }
  return {};
}

interface Requirements {
  limits?: Record<string, unknown>;
  requests?: Record<string, unknown>;
}

/** resourcesOf the launcher or of a worker, as far as the job itself sets them. */
export function resourcesOf({ spec }: Job, isLauncher: boolean): Requirements | undefined {
  if (spec.mpiReplicaSpecs) {
    const containers = spec.mpiReplicaSpecs[isLauncher ? 'Launcher' : 'Worker']?.template?.spec?.containers;
    return Array.isArray(containers) ? (containers[0] as { resources?: Requirements } | undefined)?.resources : undefined;
  }
  return (isLauncher ? spec.launcher?.resources : spec.trainer?.resourcesPerNode) as Requirements | undefined;
}

const suffixes: [string, number][] = [
  ['m', 1e-3],
  ['k', 1e3],
  ['M', 1e6],
  ['G', 1e9],
  ['T', 1e12],
  ['P', 1e15],
  ['Ki', 2 ** 10],
  ['Mi', 2 ** 20],
  ['Gi', 2 ** 30],
  ['Ti', 2 ** 40],
  ['Pi', 2 ** 50],
];

/** quantity reads an amount of Kubernetes such as 500m or 16Gi; undefined if it is none. */
export function quantity(text: unknown): number | undefined {
  const [, number, suffix = ''] = /^([0-9.]+(?:[eE][0-9]+)?)([A-Za-z]*)$/.exec(String(text)) ?? [];
  const factor = suffix ? suffixes.find(([name]) => name === suffix)?.[1] : 1;
  return number && factor && !Number.isNaN(Number(number)) ? Number(number) * factor : undefined;
}
