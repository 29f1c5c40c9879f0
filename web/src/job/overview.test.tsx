// @vitest-environment jsdom
// SPDX-License-Identifier: Apache-2.0

import { QueryClient, QueryClientProvider } from '@tanstack/react-query';
import { cleanup, render, screen } from '@testing-library/react';
import { MemoryRouter } from 'react-router';
import { afterEach, describe, expect, test } from 'vitest';
import type { Job, JobStatus, Schemas } from '../api/client';
import { failedPod, logOf, rootCause } from './failure';
import { Failure } from './failure-card';
import { quotaRows } from './quota';
import { WaitingCard } from './waiting-card';

afterEach(cleanup);

const attack = '<img src=x onerror="window.attacked=1">';
const job = (more: Partial<Job> = {}): Job => ({ apiVersion: 'v1', kind: 'TrainJob', metadata: { name: 'train', namespace: 'vision' }, spec: {}, ...more });
const fact = (term: string) => screen.getByText(term).closest('dt')?.nextElementSibling?.textContent;

describe('a job that waits', () => {
  const show = (waiting: Partial<Schemas['Waiting']>, findings: Schemas['Finding'][] = []) =>
    render(
      <QueryClientProvider client={new QueryClient()}>
        <WaitingCard waiting={{ cause: 'Queue', message: 'The job waits.', ...waiting }} findings={findings} job={job()} />
      </QueryClientProvider>,
    );
  test('has its position in the queue, and when it may start', () => {
    const mayStart = new Date(Date.now() + 90_500).toISOString();
    show({ mayStart, queue: { name: 'team-a', clusterQueue: 'gpu', position: 3, length: 7, ahead: ['bert', 'resnet'], lacks: '4 more GPUs' } });
    screen.getByRole('heading', { name: 'Waiting for its position in the queue' });
    expect(fact('Queue')).toBe('team-a, of the ClusterQueue gpu');
    expect(fact('Position')).toBe('3 of 7');
    expect(fact('Before this job')).toBe('bert, resnet');
    expect(fact('Missing quota')).toBe('4 more GPUs');
    expect(fact('May start')).toMatch(/ at the earliest, in 1m(29|30)s$/);
  });
  test('has the pods that are scheduled, and what to do', () => {
    show({ cause: 'Nodes', remedy: 'kubectl describe nodes', gang: { scheduled: 3, pods: 5, pod: 'worker-3' } });
    expect(screen.getByRole('progressbar').getAttribute('aria-valuetext')).toBe('3 of 5 pods are scheduled');
    expect(fact('Pod without a node')).toBe('worker-3');
    screen.getByText('kubectl describe nodes');
  });
  test('for a cause that the page does not know has its message, as text', () => {
    show({ cause: 'New', message: attack, object: attack }, [{ rank: 'certain', check: 'New', title: attack }]);
    screen.getByRole('heading', { name: 'Why it waits' });
    expect(screen.getAllByText(attack)).toHaveLength(2);
    expect(document.querySelector('img')).toBeNull();
  });
});

describe('quota', () => {
  const quotas: Schemas['QuotaUsage'][] = [
    { name: 'compute', hard: { 'requests.cpu': '16', 'requests.memory': '64Gi' }, used: { 'requests.cpu': '14500m' } },
    { name: 'pods', hard: { pods: '5' }, used: { pods: '5' } },
  ];
  test('is used, limited and free, of the quota that the job waits for', () => {
    expect(quotaRows(quotas, job(), 'resourcequota/compute')).toEqual([
      { quota: 'compute', resource: 'requests.cpu', used: '14500m', hard: '16', free: '1.5', demand: '' },
      { quota: 'compute', resource: 'requests.memory', used: '0', hard: '64Gi', free: '64.0 GiB', demand: '' },
    ]);
    expect(quotaRows(quotas, job(), 'resourcequota').map((row) => row.quota)).toEqual(['compute', 'compute', 'pods']);
  });

  const resources = { requests: { cpu: '1500m', memory: '2Gi' }, limits: { memory: '4Gi', 'nvidia.com/gpu': 2 } };
  const trainJob = job({ spec: { trainer: { numNodes: 3, resourcesPerNode: resources } } as unknown as Job['spec'] });
  const mpiJob = job({ spec: { mpiReplicaSpecs: { Worker: { replicas: 3, template: { spec: { containers: [{ resources }] } } } } } as unknown as Job['spec'] });
  test.each([
    ['requests.cpu', '4.5'],
    ['cpu', '4.5'],
    ['limits.cpu', ''],
    ['limits.memory', '12.0 GiB'],
    ['requests.nvidia.com/gpu', '6'],
    ['pods', '3'],
    ['count/pods', '3'],
    ['services', ''],
    ['requests.storage', ''],
  ])('%s: the workers need %j', (resource, want) => {
    const hard = [{ name: 'all', hard: { [resource]: '100' }, used: {} }];
    for (const one of [trainJob, mpiJob]) expect(quotaRows(hard, one)[0]?.demand).toBe(want);
  });
  test('is needed by the workers of the runtime, too, if the job does not set their number', () => {
    const one = job({ spec: { trainer: { resourcesPerNode: resources } } as unknown as Job['spec'], status: { workerCount: 2 } });
    expect(quotaRows(quotas, one).map((row) => row.demand)).toEqual(['3', '4.0 GiB', '2']);
  });
});

describe('a failure', () => {
  const oom: JobStatus = {
    failureReason: 'WorkerFailed',
    failureCause: 'OOMKilled',
    failureMessage: `Worker 2 failed ${attack}`,
    launcherPodStatus: { name: 'train-launcher', phase: 'Failed', reason: 'Error' },
    workerPodStatuses: [
      { index: 0, name: 'train-worker-0', phase: 'Failed', reason: 'Error' },
      { index: 2, name: 'train-worker-2', node: 'node-c', phase: 'Failed', reason: 'OOMKilled' },
    ],
  };
  test('has the pod with its cause, or that of its process', () => {
    expect(failedPod(oom)?.name).toBe('train-worker-2');
    expect(failedPod({ ...oom, failedProcess: { host: 'train-worker-0' } })?.name).toBe('train-worker-0');
    expect(failedPod({ ...oom, failureCause: '' })?.role).toMatch(/^Worker/);
    expect(failedPod({ ...oom, failureReason: 'LauncherFailed', failureCause: undefined })?.role).toBe('Launcher');
    expect(failedPod({})).toBeUndefined();
  });
  test('has its remedy from the finding that is the cause', () => {
    const findings = [{ rank: 'likely', check: 'Nodes', title: 'a' }, { rank: 'cause', check: 'Status', title: 'b', fix: 'odh logs' }];
    expect(rootCause({ findings } as Schemas['Diagnosis'])?.fix).toBe('odh logs');
    expect(rootCause(undefined)).toBeUndefined();
  });
  test('links to its log with and without last lines', () => {
    expect(logOf({ failedProcess: { lastLines: ['a', 'b&c'], rank: 1 } }, undefined).search).toBe('tab=logs&search=b%26c');
    expect(logOf({ failedProcess: { error: '\u001b[31mout of\u001b[0m memory' } }, undefined).search).toBe('tab=logs&search=out%20of%20memory');
    expect(logOf({ failedProcess: { rank: 0 } }, undefined)).toEqual({ search: 'tab=logs&rank=0', text: 'Show the log of rank 0' });
    expect(logOf(oom, failedPod(oom))).toEqual({ search: 'tab=logs&pod=worker-2', text: 'Show the log of worker 2' });
    expect(logOf({}, undefined).search).toBe('tab=logs');
  });
  test('is shown with pod, node, remedy and log; its texts are no HTML', () => {
    render(
      <MemoryRouter>
        <Failure status={oom} remedy={attack} />
      </MemoryRouter>,
    );
    expect(fact('Pod')).toBe('train-worker-2 (worker 2)');
    expect(fact('Node')).toBe('node-c');
    screen.getByText(attack);
    expect(screen.getByRole('link', { name: 'Show the log of worker 2' }).getAttribute('href')).toBe('/?tab=logs&pod=worker-2');
    expect(document.querySelector('img')).toBeNull();
  });
});
