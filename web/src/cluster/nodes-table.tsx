// SPDX-License-Identifier: Apache-2.0

import { Label, Progress, ProgressMeasureLocation } from '@patternfly/react-core';
import { Table, Tbody, Td, Th, Thead, Tr } from '@patternfly/react-table';
import type { Schemas } from '../api/client';
import { amountText, percentOf } from './cluster-use';

/** NodesTable has what each node has, and what its pods request of it. */
export function NodesTable({ nodes }: { nodes: Schemas['Capacity'][] }) {
  const columns = [['gpu', 'GPUs'] as const, ['cpu', 'CPUs'] as const, ['memory', 'Memory'] as const].filter(([resource]) => nodes.some((node) => node[resource].allocatable > 0));
  return (
    <Table aria-label="Nodes" variant="compact">
      <Thead>
        <Tr>
          <Th>Node</Th>
          <Th>State</Th>
          {columns.map(([resource, name]) => (
            <Th key={resource}>{name} requested</Th>
          ))}
        </Tr>
      </Thead>
      <Tbody>
        {nodes.map((node) => (
          <Tr key={node.name}>
            <Td dataLabel="Node" modifier="breakWord">{node.name}</Td>
            <Td dataLabel="State">
              <State node={node} />
            </Td>
            {columns.map(([resource, name]) => (
              <Td key={resource} dataLabel={`${name} requested`}>
                {node[resource].allocatable > 0 ? (
                  <Progress
                    size="sm"
                    aria-label={`${name} requested on ${node.name}`}
                    value={percentOf(node[resource])}
                    label={amountText(resource, node[resource])}
                    valueText={amountText(resource, node[resource])}
                    measureLocation={ProgressMeasureLocation.top}
                  />
                ) : (
                  '–'
                )}
              </Td>
            ))}
          </Tr>
        ))}
      </Tbody>
    </Table>
  );
}

function State({ node }: { node: Schemas['Capacity'] }) {
  const [color, word] = !node.ready ? (['red', 'Not ready'] as const) : node.schedulable ? (['green', 'Ready'] as const) : (['grey', 'Cordoned'] as const);
  return (
    <Label color={color} isCompact>
      {word}
    </Label>
  );
}
