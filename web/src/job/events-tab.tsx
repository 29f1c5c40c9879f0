// SPDX-License-Identifier: Apache-2.0

import { EmptyState, Label } from '@patternfly/react-core';
import { Table, Tbody, Td, Th, Thead, Tr } from '@patternfly/react-table';
import { Loading, ProblemAlert } from '../shared/states';
import { localTime } from '../shared/time';
import type { TabProps } from './job-tabs';
import { useJobEvents } from './use-job';

/** EventsTab lists the events of the job and the warnings of its pods, newest first. */
export function EventsTab({ reference }: TabProps) {
  const events = useJobEvents(reference);
  if (events.error && !events.data) return <ProblemAlert title="The events cannot be read" problem={events.error} />;
  if (!events.data) return <Loading label="Loading events" />;
  if (events.data.length === 0) return <EmptyState titleText="No events" headingLevel="h2" />;
  return (
    <Table aria-label="Events" variant="compact">
      <Thead>
        <Tr>
          <Th width={15}>Time</Th>
          <Th width={10}>Type</Th>
          <Th width={15}>Reason</Th>
          <Th width={20}>Object</Th>
          <Th>Message</Th>
        </Tr>
      </Thead>
      <Tbody>
        {[...events.data].reverse().map((event, index) => (
          <Tr key={index}>
            <Td dataLabel="Time">{localTime(event.timestamp)}</Td>
            <Td dataLabel="Type">
              <Label isCompact color={event.type === 'Warning' ? 'orange' : 'grey'}>
                {event.type}
              </Label>
            </Td>
            <Td dataLabel="Reason">{event.reason}</Td>
            <Td dataLabel="Object" modifier="breakWord">{event.object}</Td>
            <Td dataLabel="Message" modifier="breakWord">
              {event.message}
              {event.count > 1 && ` (${event.count} times)`}
            </Td>
          </Tr>
        ))}
      </Tbody>
    </Table>
  );
}
