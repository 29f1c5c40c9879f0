// SPDX-License-Identifier: Apache-2.0

import { Card, CardBody, CardTitle } from '@patternfly/react-core';
import { Table, Tbody, Td, Th, Thead, Tr } from '@patternfly/react-table';
import type { JobStatus } from '../api/client';

/** RanksCard names the ranks that a stalled or slow job waits for. */
export function RanksCard({ ranks }: { ranks: NonNullable<JobStatus['ranks']> }) {
  return (
    <Card>
      <CardTitle component="h2">Ranks</CardTitle>
      <CardBody>
        <p>
          {ranks.running} of {ranks.total} ranks are running.
        </p>
        {ranks.odd && ranks.odd.length > 0 && (
          <Table aria-label="Ranks that differ from the others" variant="compact">
            <Thead>
              <Tr>
                <Th>Rank</Th>
                <Th>Host</Th>
                <Th>State</Th>
                <Th>Waits for</Th>
              </Tr>
            </Thead>
            <Tbody>
              {ranks.odd.map((rank) => (
                <Tr key={rank.rank}>
                  <Td dataLabel="Rank">{rank.rank}</Td>
                  <Td dataLabel="Host">{rank.host}</Td>
                  <Td dataLabel="State">{rank.doing}</Td>
                  <Td dataLabel="Waits for">{rank.waitsFor}</Td>
                </Tr>
              ))}
            </Tbody>
          </Table>
        )}
      </CardBody>
    </Card>
  );
}
