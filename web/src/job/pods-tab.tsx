// SPDX-License-Identifier: Apache-2.0

import { Card, CardBody, CardTitle, EmptyState } from '@patternfly/react-core';
import { Table, Tbody, Td, Th, Thead, Tr } from '@patternfly/react-table';
import { Link } from 'react-router';
import type { Job } from '../api/client';
import { Status } from '../shared/status';
import type { TabProps } from './job-tabs';
import { podsOf, type Pod } from './job-pods';

/** podsByNode groups the launcher and the workers by the node that they run on. */
export function podsByNode(job: Job): [string, Pod[]][] {
  const nodes = new Map<string, Pod[]>();
  for (const pod of podsOf(job.status ?? {})) nodes.set(pod.node ?? '', [...(nodes.get(pod.node ?? '') ?? []), pod]);
  return [...nodes].sort(([a], [b]) => a.localeCompare(b));
}

/** PodsTab shows the pods by node, with their health. */
export function PodsTab({ job }: TabProps) {
  const nodes = podsByNode(job);
  if (nodes.length === 0) return <EmptyState titleText="The job has no pods" headingLevel="h2" />;
  return (
    <>
      {nodes.map(([node, pods]) => (
        <Card key={node}>
          <CardTitle component="h2">{node ? `Node ${node}` : 'Not scheduled'}</CardTitle>
          <CardBody>
            <Table aria-label={node ? `Pods on ${node}` : 'Pods without a node'} variant="compact">
              <Thead>
                <Tr>
                  <Th width={15}>Role</Th>
                  <Th width={25}>Pod</Th>
                  <Th width={15}>Status</Th>
                  <Th width={15}>Reason</Th>
                  <Th>Message</Th>
                </Tr>
              </Thead>
              <Tbody>
                {pods.map((pod) => (
                  <Tr key={pod.role}>
                    <Td dataLabel="Role">
                      <Link to={{ search: pod.log }} aria-label={`Log of ${pod.role}`}>
                        {pod.role}
                      </Link>
                    </Td>
                    <Td dataLabel="Pod" modifier="breakWord">{pod.name}</Td>
                    <Td dataLabel="Status">
                      <Status status={pod.phase ?? ''} />
                    </Td>
                    <Td dataLabel="Reason">{pod.reason}</Td>
                    <Td dataLabel="Message" modifier="breakWord">{pod.message}</Td>
                  </Tr>
                ))}
              </Tbody>
            </Table>
          </CardBody>
        </Card>
      ))}
    </>
  );
}
