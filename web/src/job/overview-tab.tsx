// SPDX-License-Identifier: Apache-2.0

import { Card, CardBody, CardTitle } from '@patternfly/react-core';
import { Table, Tbody, Td, Th, Thead, Tr } from '@patternfly/react-table';
import { localTime } from '../shared/time';
import { DiagnosisCard } from './diagnosis-card';
import { FailureCard } from './failure-card';
import type { TabProps } from './job-tabs';
import { RanksCard } from './ranks-card';
import { StartCard } from './start-card';

/** OverviewTab explains the state of a job. */
export function OverviewTab({ job, reference }: TabProps) {
  const status = job.status ?? {};
  return (
    <div className="tr-columns">
      {status.failureReason && <FailureCard status={status} reference={reference} />}
      {status.phase !== 'Succeeded' && !reference.record && <DiagnosisCard job={job} reference={reference} hasFailed={Boolean(status.failureReason)} />}
      {status.ranks && <RanksCard ranks={status.ranks} />}
      <StartCard status={status} />
      <Card>
        <CardTitle component="h2">Conditions</CardTitle>
        <CardBody>
          <Table aria-label="Conditions" variant="compact">
            <Thead>
              <Tr>
                <Th>Type</Th>
                <Th>Status</Th>
                <Th>Reason</Th>
                <Th>Message</Th>
                <Th>Since</Th>
              </Tr>
            </Thead>
            <Tbody>
              {(status.conditions ?? []).map((condition) => (
                <Tr key={condition.type}>
                  <Td dataLabel="Type">{condition.type}</Td>
                  <Td dataLabel="Status">{condition.status}</Td>
                  <Td dataLabel="Reason">{condition.reason}</Td>
                  <Td dataLabel="Message" modifier="breakWord">{condition.message}</Td>
                  <Td dataLabel="Since">{condition.lastTransitionTime && localTime(condition.lastTransitionTime)}</Td>
                </Tr>
              ))}
            </Tbody>
          </Table>
        </CardBody>
      </Card>
    </div>
  );
}
