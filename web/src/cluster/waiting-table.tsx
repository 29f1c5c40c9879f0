// SPDX-License-Identifier: Apache-2.0

import { Content } from '@patternfly/react-core';
import { Table, Tbody, Td, Th, Thead, Tr } from '@patternfly/react-table';
import { Link } from 'react-router';
import type { Schemas } from '../api/client';
import { pathOf } from '../jobs/actions';
import { Status } from '../shared/status';
import { duration } from '../shared/time';
import { number } from './cluster-use';

/** WaitingTable has the jobs without nodes, and what they wait for. */
export function WaitingTable({ jobs }: { jobs: Schemas['WaitingJob'][] }) {
  if (jobs.length === 0) return <Content>No job waits.</Content>;
  return (
    <Table aria-label="Waiting jobs" variant="compact">
      <Thead>
        <Tr>
          <Th width={15}>Job</Th>
          <Th width={15}>Namespace</Th>
          <Th width={10}>Status</Th>
          <Th>Queue</Th>
          <Th>GPUs</Th>
          <Th>CPUs</Th>
          <Th>Waited</Th>
          <Th width={40}>Cause</Th>
        </Tr>
      </Thead>
      <Tbody>
        {jobs.map((job) => (
          <Tr key={`${job.kind}/${job.namespace}/${job.name}`}>
            <Td dataLabel="Job" modifier="breakWord">
              <Link to={pathOf(job)}>{job.name}</Link>
            </Td>
            <Td dataLabel="Namespace" modifier="breakWord">{job.namespace}</Td>
            <Td dataLabel="Status">
              <Status status={job.status} />
            </Td>
            <Td dataLabel="Queue">{job.queue ?? '–'}</Td>
            <Td dataLabel="GPUs">{number(job.gpus)}</Td>
            <Td dataLabel="CPUs">{number(job.cpus)}</Td>
            <Td dataLabel="Waited">{duration(job.waitedSeconds)}</Td>
            <Td dataLabel="Cause" modifier="breakWord">
              <span className="tr-clamp" title={job.message}>
                {job.message}
              </span>
            </Td>
          </Tr>
        ))}
      </Tbody>
    </Table>
  );
}
