// SPDX-License-Identifier: Apache-2.0

import { Content, Progress, ProgressMeasureLocation } from '@patternfly/react-core';
import { Table, Tbody, Td, Th, Thead, Tr } from '@patternfly/react-table';
import type { Schemas } from '../api/client';
import { quantity } from '../job/usage';
import { number, wasted, type ClusterUse } from './cluster-use';

/** NamespacesTable has what jobs request now, what they used and wasted, and the quotas. */
export function NamespacesTable({ use }: { use: ClusterUse }) {
  if (use.namespaces.length === 0) return <Content>No namespace that you may see has jobs or quotas.</Content>;
  // GPU-hours where there are GPUs, else CPU-hours.
  const hasGPUs = use.total.gpuHours.requested > 0;
  const hours = (line: Schemas['Line']) => (hasGPUs ? line.gpuHours : line.cpuHours);
  const unit = hasGPUs ? 'GPU-hours' : 'CPU-hours';
  const request = ({ gpus, cpus }: Schemas['Share']) => (gpus > 0 ? `, ${number(gpus)} GPUs` : cpus > 0 ? `, ${number(cpus)} CPUs` : '');
  const share = (one?: Schemas['Share']) => (one ? `${one.jobs}${request(one)}` : '–');
  return (
    <Table aria-label="Namespaces" variant="compact">
      <Thead>
        <Tr>
          <Th width={15}>Namespace</Th>
          <Th>Running</Th>
          <Th>Starting</Th>
          <Th>Waiting</Th>
          <Th>{unit} used</Th>
          <Th info={{ tooltip: 'Nodes that were idle until the ranks started, and jobs that failed' }}>Wasted</Th>
          <Th width={30}>Quota</Th>
        </Tr>
      </Thead>
      <Tbody>
        {use.namespaces.map((one) => (
          <Tr key={one.namespace}>
            <Td dataLabel="Namespace" modifier="breakWord">{one.namespace}</Td>
            <Td dataLabel="Running">{share(one.now.running)}</Td>
            <Td dataLabel="Starting">{share(one.now.idle)}</Td>
            <Td dataLabel="Waiting">{share(one.now.waiting)}</Td>
            <Td dataLabel={`${unit} used`}>{number(hours(one).used)}</Td>
            <Td dataLabel="Wasted">{number(wasted(hours(one)))}</Td>
            <Td dataLabel="Quota">{one.quotas.length === 0 ? '–' : <Quotas quotas={one.quotas} />}</Td>
          </Tr>
        ))}
        <Tr>
          <Th dataLabel="Namespace">Total</Th>
          <Td dataLabel="Running">{share(sum(use, 'running'))}</Td>
          <Td dataLabel="Starting">{share(sum(use, 'idle'))}</Td>
          <Td dataLabel="Waiting">{share(sum(use, 'waiting'))}</Td>
          <Td dataLabel={`${unit} used`}>{number(hours(use.total).used)}</Td>
          <Td dataLabel="Wasted">{number(wasted(hours(use.total)))}</Td>
          <Td dataLabel="Quota" />
        </Tr>
      </Tbody>
    </Table>
  );
}

function sum(use: ClusterUse, state: string): Schemas['Share'] | undefined {
  const shares = use.namespaces.flatMap(({ now }) => now[state] ?? []);
  if (shares.length === 0) return undefined;
  return shares.reduce((total, one) => ({ jobs: total.jobs + one.jobs, gpus: total.gpus + one.gpus, cpus: total.cpus + one.cpus }), { jobs: 0, gpus: 0, cpus: 0 });
}

function Quotas({ quotas }: { quotas: Schemas['QuotaUsage'][] }) {
  return quotas.flatMap((quota) =>
    Object.entries(quota.hard).map(([resource, hard]) => {
      const used = quota.used[resource] ?? '0';
      const [limit = 0, taken = 0] = [quantity(hard), quantity(used)];
      const text = `${used} of ${hard}`;
      return (
        <Progress
          key={`${quota.name}/${resource}`}
          size="sm"
          title={resource}
          aria-label={`${quota.name}: ${resource}`}
          value={limit > 0 ? Math.min(100, (100 * taken) / limit) : 0}
          label={text}
          valueText={text}
          measureLocation={ProgressMeasureLocation.top}
          variant={limit > 0 && taken >= limit ? 'warning' : undefined}
        />
      );
    }),
  );
}
